"""Execution of one warp of every block of a launch, all at once: its output is a list of events.

Integers are known, data is not. All iterations of all loops are run. Where blocks or lanes part,
both ways are followed under masks up to the place where they meet. A branch on data is followed
both ways, and what lies there may or may not happen; nothing may lie there that others wait for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mirage_py.runtime.code_check.events import Event, Fault, Launch, UnsupportedError
from mirage_py.runtime.code_check.global_memory import GlobalMemory
from mirage_py.runtime.code_check.ptx import integers
from mirage_py.runtime.code_check.ptx.flow import EXIT, Flow, flow_of, followed, live_at, written
from mirage_py.runtime.code_check.ptx.integers import UNKNOWN, Value
from mirage_py.runtime.code_check.ptx.ptx import Address, Entry, Instruction, Vector

Mask = Any
LANES = np.arange(32, dtype=np.int64)[None, :]
# Where generic addresses of shared memory, and addresses of parameters begin.
GENERIC = 1 << 56
PARAMETERS = 1 << 57
# A shared address of another block of the cluster: its rank plus one above these bits.
RANK_SHIFT = 24
_NO_EFFECT = ("prefetch", "prefetchu", "griddepcontrol", "setmaxnreg", "nanosleep", "pragma")
_MOST_DEPTH = 700


@dataclass(slots=True)
class EntryOfLaunch:
    """An entry with all that its warps have in common."""

    entry: Entry
    launch: Launch
    memory: GlobalMemory
    flow: Flow = field(init=False)
    keep: list[bool] = field(init=False)
    live: list[frozenset[str]] = field(init=False)
    symbols: dict[str, int] = field(init=False)
    shared_end: int = field(init=False)
    budget: int = 4_000_000

    def __post_init__(self) -> None:
        self.flow = flow_of(self.entry)
        self.keep = followed(self.entry)
        self.live = live_at(self.entry, self.flow, self.keep)
        self.symbols = {}
        at = 0
        dynamic = [s for s in self.entry.symbols if s.space == "shared" and not s.size]
        for s in self.entry.symbols:
            if s.space == "shared" and s.size:
                at = -(-at // s.align) * s.align
                self.symbols[s.name] = at
                at += s.size
            elif s.space != "shared":
                self.symbols[s.name] = self.memory.table(s.name, s.data or b"")
        for s in dynamic:
            at = -(-at // s.align) * s.align
            self.symbols[s.name] = at
        self.shared_end = at + self.launch.smem_bytes if dynamic else at
        for n, name in enumerate(self.entry.parameters):
            self.symbols[name] = PARAMETERS + (n << 16)


class WarpRun:
    """What one warp of every block does, in order."""

    def __init__(self, program: EntryOfLaunch, warp: int) -> None:
        self.program = program
        self.warp = warp
        launch = program.launch
        self.blocks = launch.blocks
        self.registers: dict[str, Value] = {}
        self.events: list[Event] = []
        self.exited: Mask = np.zeros((1, 32), bool)
        self.waited: Mask = np.zeros((1, 32), bool)
        self.may = 0
        self.unknown_branches: list[int] = []
        self.depth = 0
        block: Value = np.arange(launch.blocks, dtype=np.int64)[:, None]
        if launch.blocks == 1:
            block = 0
        cluster = launch.cluster
        self.special: dict[str, Value] = {
            "%tid.x": warp * 32 + LANES,
            "%laneid": LANES,
            "%warpid": warp,
            "%ctaid.x": block,
            "%ntid.x": launch.threads,
            "%nctaid.x": launch.blocks,
            "%cluster_ctarank": block % cluster if cluster > 1 else 0,
            "%cluster_ctaid.x": block % cluster if cluster > 1 else 0,
            "%clusterid.x": block // cluster,
            "%nclusterid.x": launch.blocks // cluster,
            "%cluster_nctarank": cluster,
            "%cluster_nctaid.x": cluster,
            "%dynamic_smem_size": launch.smem_bytes,
        }
        for axis in "yz":
            self.special |= {f"%{n}.{axis}": 0 for n in ("tid", "ctaid", "cluster_ctaid")}
            self.special |= {f"%{n}.{axis}": 1 for n in ("ntid", "nctaid", "cluster_nctaid")}

    def run(self) -> list[Event]:
        """All of it. Raises UnsupportedError."""
        self._follow(0, np.ones((1, 32), bool), EXIT, None)
        last = self.program.entry.instructions[-1]
        if self.program.launch.waits and not self.waited.all():
            # It could end before the kernel in front, and what waits for it would read too soon.
            text = "a thread ends without having waited for the kernel in front"
            self.program.memory.say(Fault("early access", last.line, text))
        self._note("exit", last, np.ones((1, 32), bool))
        return self.events

    # -- control flow ----------------------------------------------------------------------------

    def _follow(self, at: int, mask: Mask, stop: int, merged: frozenset[str] | None) -> None:
        """From block ``at`` up to ``stop``. Of registers in ``merged`` other threads' values stay;
        None: there are no others.
        """
        self.depth += 1
        if self.depth > _MOST_DEPTH:
            raise UnsupportedError("loops part too often")
        flow, code, keep = self.program.flow, self.program.entry.instructions, self.program.keep
        while at not in (stop, EXIT):
            block = flow.blocks[at]
            if self.exited.any():
                mask = mask & ~self.exited
                if not mask.any():
                    break
            for n in range(block.first, block.stop):
                if keep[n]:
                    self._execute(code[n], mask, merged)
            branch = block.branch
            if branch is None:
                at = block.following
            elif not branch.guard:
                if branch.parts[0] != "bra":
                    self._leave(mask)
                at = block.target
            else:
                at = self._branch(at, branch, mask, merged)
        self.depth -= 1

    def _branch(
        self, at: int, branch: Instruction, mask: Mask, merged: frozenset[str] | None
    ) -> int:
        block, meet = self.program.flow.blocks[at], self.program.flow.meets[at]
        chosen = self.registers.get(branch.guard, UNKNOWN)
        if chosen is UNKNOWN:
            self._both_ways(at, branch, mask, merged)
            return meet
        if branch.negated:
            chosen = np.logical_not(chosen)
        if not isinstance(chosen, np.ndarray):
            taken = bool(chosen)
        else:
            some = mask & chosen
            others = mask & ~chosen
            if some.any() and others.any():
                self._part(block.target, some, meet, merged, block.following, branch)
                self._part(block.following, others, meet, merged, block.target, branch)
                return meet
            taken = bool(some.any())
        if taken and branch.parts[0] != "bra":
            self._leave(mask)
            return EXIT
        return block.target if taken else block.following

    def _part(
        self,
        to: int,
        mask: Mask,
        meet: int,
        merged: frozenset[str] | None,
        other: int,
        branch: Instruction,
    ) -> None:
        if to == EXIT:
            if branch.parts[0] != "bra":
                self._leave(mask)
            return
        live = self.program.live
        kept = frozenset[str]() if merged is None else merged
        kept |= live[other] if other != EXIT else frozenset()
        kept |= live[meet] if meet != EXIT else frozenset()
        self._follow(to, mask, meet, kept)

    def _both_ways(
        self, at: int, branch: Instruction, mask: Mask, merged: frozenset[str] | None
    ) -> None:
        """A branch that depends on data."""
        block, meet = self.program.flow.blocks[at], self.program.flow.meets[at]
        if at in self.unknown_branches:
            raise UnsupportedError(f"line {branch.line}: a loop that data ends")
        if meet == EXIT:
            raise UnsupportedError(f"line {branch.line}: data decides which threads end")
        self.unknown_branches.append(at)
        self.may += 1
        before = dict(self.registers)
        if block.target != meet:
            self._follow(block.target, mask, meet, merged)
        first, self.registers = self.registers, before
        if block.following != meet:
            self._follow(block.following, mask, meet, merged)
        for name in first:
            if not _same(first[name], self.registers.get(name, UNKNOWN)):
                self.registers[name] = UNKNOWN
        for name in self.registers:
            if name not in first:
                self.registers[name] = UNKNOWN
        self.may -= 1
        self.unknown_branches.pop()

    def _leave(self, mask: Mask) -> None:
        if self.may:
            raise UnsupportedError("data decides which threads end")
        self.exited = self.exited | mask

    # -- instructions ----------------------------------------------------------------------------

    def _execute(self, i: Instruction, mask: Mask, merged: frozenset[str] | None) -> None:
        may = bool(self.may)
        if i.guard:
            p = self.registers.get(i.guard, UNKNOWN)
            may = may or p is UNKNOWN
            if p is not UNKNOWN:
                mask = mask & (np.logical_not(p) if i.negated else p)
                if not mask.any():
                    return
            merged = _ALL
        self.program.budget -= 1
        if self.program.budget < 0:
            raise UnsupportedError("too many instructions to follow")
        name = i.parts[0]
        special = _SPECIAL.get(name)
        if special is not None:
            special(self, i, mask, merged, may)
        elif name in _NO_EFFECT:
            if i.parts[1:2] == ("wait",) and not may:
                self.waited = self.waited | mask
        elif name == "setp":
            self._compare(i, mask, merged)
        elif name in ("vote", "activemask", "redux"):
            self._vote(i, mask, merged)
        elif not i.operands:
            raise UnsupportedError(f"line {i.line}: {i.opcode}")
        else:
            self._compute(i, mask, merged, may)

    def _compute(
        self, i: Instruction, mask: Mask, merged: frozenset[str] | None, may: bool
    ) -> None:
        to, name = i.operands[0], i.parts[0]
        if name not in integers.KNOWN and not written(i):
            raise UnsupportedError(f"line {i.line}: {i.opcode}")
        if isinstance(to, Vector):  # mov {a, b}, c
            whole = self.value(i.operands[1])
            width = int(i.parts[-1][1:]) // len(to.items)
            for n, item in enumerate(to.items):
                part = UNKNOWN
                if whole is not UNKNOWN:
                    part = integers.wrap(whole >> n * width, width)
                self.write(item, part, mask, merged, may)
            return None
        if len(i.operands) > 1 and isinstance(i.operands[1], Vector):  # mov a, {b, c}
            items = [self.value(x) for x in i.operands[1].items]
            if any(x is UNKNOWN for x in items) or not integers.is_integer(i.parts[-1]):
                return self.write(to, UNKNOWN, mask, merged, may)
            bits = int(i.parts[-1][1:])
            width, total = bits // len(items), 0
            for n, x in enumerate(items):
                total = total | x << n * width
            return self.write(to, integers.wrap(total, bits), mask, merged, may)
        if name == "shfl":
            return self._shuffle(i, mask, merged, may)
        if name == "mapa":
            return self._map(i, mask, merged, may)
        if name == "cvta":
            return self._convert_address(i, mask, merged, may)
        if name == "elect":
            return self._elect(i, mask, merged)
        args = [self.value(o) for o in i.operands[1:]]
        self.write(to, integers.compute(i.parts, args), mask, merged, may)
        return None

    def _compare(self, i: Instruction, mask: Mask, merged: frozenset[str] | None) -> None:
        a, b = self.value(i.operands[1]), self.value(i.operands[2])
        parts = i.parts
        found = integers.compare(parts, a, b)
        if len(i.operands) > 3:  # with a predicate: .and, .or
            p = self.value(i.operands[3])
            found = integers.compute((parts[2], "pred"), (found, p))
        names = str(i.operands[0]).split("|")
        self.write(names[0], found, mask, merged, False)
        if len(names) > 1:
            other = UNKNOWN if found is UNKNOWN else np.logical_not(found)
            self.write(names[1], other, mask, merged, False)

    def _vote(self, i: Instruction, mask: Mask, merged: frozenset[str] | None) -> None:
        to = i.operands[0]
        if i.parts[0] == "activemask" or "ballot" in i.parts or i.parts[0] == "redux":
            return self.write(to, UNKNOWN, mask, merged, False)
        p = self.value(i.operands[1])
        if p is not UNKNOWN and isinstance(p, np.ndarray):
            p = np.broadcast_to(p, np.broadcast_shapes(p.shape, mask.shape))
            inside = np.broadcast_to(mask, p.shape)
            if "any" in i.parts:
                p = (p & inside).any(axis=1, keepdims=True)
            elif "all" in i.parts:
                p = (p | ~inside).all(axis=1, keepdims=True)
            else:
                p = UNKNOWN
        self.write(to, p, mask, merged, False)
        return None

    def _shuffle(
        self, i: Instruction, mask: Mask, merged: frozenset[str] | None, may: bool
    ) -> None:
        names = str(i.operands[0]).split("|")
        value, other, limit = (self.value(o) for o in i.operands[1:4])
        found = value
        if isinstance(value, np.ndarray) and value.shape[1] == 32:
            if (
                limit is UNKNOWN
                or not isinstance(limit, int)
                or limit >> 8
                or limit & 31 != 31
                or other is UNKNOWN
                or ("idx" not in i.parts and not isinstance(other, int))
            ):
                found = UNKNOWN
            elif "idx" in i.parts:
                source = np.broadcast_to(np.asarray(other) & 31, (1, 32))
                found = np.take_along_axis(value, np.broadcast_to(source, value.shape), 1)
                if isinstance(other, int):
                    found = found[:, :1]
                    if found.size == 1:
                        found = int(found[0, 0])
            elif "bfly" in i.parts:
                found = value[:, (LANES[0] ^ other) & 31]
            else:
                found = UNKNOWN
        self.write(names[0], found, mask, merged, may)
        if len(names) > 1:
            self.write(names[1], UNKNOWN, mask, merged, may)

    def _elect(self, i: Instruction, mask: Mask, merged: frozenset[str] | None) -> None:
        names = str(i.operands[0]).split("|")
        first = mask & (np.cumsum(mask, axis=1) == 1)
        self.write(names[-1], first, mask, merged, False)

    def _map(self, i: Instruction, mask: Mask, merged: frozenset[str] | None, may: bool) -> None:
        address, rank = self.value(i.operands[1]), self.value(i.operands[2])
        if address is UNKNOWN or rank is UNKNOWN:
            return self.write(i.operands[0], UNKNOWN, mask, merged, may)
        return self.write(i.operands[0], address + ((rank + 1) << RANK_SHIFT), mask, merged, may)

    def _convert_address(
        self, i: Instruction, mask: Mask, merged: frozenset[str] | None, may: bool
    ) -> None:
        value = self.value(i.operands[1])
        if value is not UNKNOWN and "shared" in " ".join(i.parts):
            value = value - GENERIC if "to" in i.parts else value + GENERIC
        self.write(i.operands[0], value, mask, merged, may)

    # -- registers -------------------------------------------------------------------------------

    def value(self, operand: object) -> Value:
        """What an operand is now."""
        if isinstance(operand, int):
            return operand
        if not isinstance(operand, str):
            return UNKNOWN
        found = self.registers.get(operand)
        if found is None:
            found = self.special.get(operand)
        if found is None:
            found = self.program.symbols.get(operand, UNKNOWN)
        return found

    def write(
        self, to: object, value: Value, mask: Mask, merged: frozenset[str] | None, may: bool
    ) -> None:
        """Give a register its value, for the threads of ``mask``."""
        name = str(to)
        if name == "_":
            return
        before = self.registers.get(name)
        if before is not None and merged is not None and (merged is _ALL or name in merged):
            if value is UNKNOWN or before is UNKNOWN or (may and merged is _ALL):
                value = UNKNOWN
            else:
                value = np.where(mask, value, before)
        self.registers[name] = value

    def address(self, operand: object, what: Instruction) -> Value:
        """Of an operand in brackets. Raises UnsupportedError where it depends on data."""
        assert isinstance(operand, Address)
        base = self.value(operand.base)
        if base is UNKNOWN:
            raise UnsupportedError(
                f"line {what.line}: an address that depends on data ({what.opcode})"
            )
        return base + operand.offset if operand.offset else base

    def number(self, operand: object, what: Instruction) -> Value:
        """Of an operand that must be known."""
        found = self.value(operand)
        if found is UNKNOWN:
            raise UnsupportedError(
                f"line {what.line}: {what.opcode} with a number that depends on data"
            )
        return found

    def note(
        self,
        kind: str,
        what: Instruction,
        mask: Mask,
        address: Value = 0,
        size: int = 0,
        data: Any = None,
        may: bool = False,
    ) -> None:
        """Remember what was done."""
        self.events.append(Event(kind, what.line, mask, address, size, data, may))

    _note = note


_ALL = frozenset({"*"})
Special = Callable[[WarpRun, Instruction, Any, "frozenset[str] | None", bool], None]
_SPECIAL: dict[str, Special] = {}


def special(*names: str) -> Callable[[Special], Special]:
    """Says who executes instructions of these names."""

    def put(function: Special) -> Special:
        for name in names:
            _SPECIAL[name] = function
        return function

    return put


def _same(a: Value, b: Value) -> bool:
    if a is b:
        return True
    if a is UNKNOWN or b is UNKNOWN:
        return False
    return bool(np.array_equal(a, b)) if np.shape(a) == np.shape(b) else False
