"""A check that a loop pipelined by Triton does not overwrite a stage that a ``wgmma`` still reads.

Triton 3.6 gives a tile one stage less where something else reads it into registers, an elementwise
operator or a product of ``mma.sync``: that has been read when the next tile is asked for. A
``wgmma`` of the same tile is still under way then, and the copy goes to the stage that it reads:
what comes out depends on who is first. Copies after the loop's last tile write zeros. The
interpreter runs what the loop was made from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

# A stage of a ring: its allocation, and which of them.
Stage = tuple[str, int]
_NAME = r"%[\w$.-]+"
_CONSTANT = re.compile(rf"\s*({_NAME}) = arith\.constant (-?\d+) : i\d+")
_LOOP = re.compile(
    rf"\s*(?:{_NAME}(?::\d+)? = )?scf\.for {_NAME} = ({_NAME}) to ({_NAME}) step ({_NAME})"
    r"(?: iter_args\((.*?)\))?"
)
_CARRIED = re.compile(rf"({_NAME}) = ({_NAME})")
_LINE = re.compile(rf"\s*(?:({_NAME})(?::\d+)? = )?([a-z_]+\.[\w.]+)\s*(.*)")
_OPERAND = re.compile(_NAME)
_PENDING = re.compile(r"pendings = (\d+)")
# Iterations that are looked at: all stages come round more than once.
_MOST = 32


def overwritten_in(ttgir: str) -> tuple[str, ...]:
    """Stages that a copy writes while a product reads them, as ``NAME[STAGE] in iteration N``, of
    the loops in the text that triton prints of its GPU dialect. Loops with loops or branches in
    them are not followed, nor are stages that it chooses otherwise than by counting.
    """
    lines = ttgir.splitlines()
    constants = {m[1]: int(m[2]) for line in lines if (m := _CONSTANT.match(line))}
    found: list[str] = []
    for head, body in _innermost(lines):
        found += _Run(constants).through(head, body)
    return tuple(found)


def _innermost(lines: Sequence[str]) -> Iterator[tuple[re.Match[str], Sequence[str]]]:
    for start, line in enumerate(lines):
        head = _LOOP.match(line)
        if head is None:
            continue
        rest = lines[start + 1 :]
        stop = next((n for n, other in enumerate(rest) if "scf." in other), None)
        if stop is not None and rest[stop].lstrip().startswith("scf.yield"):
            yield head, rest[: stop + 1]


@dataclass(slots=True)
class _Run:
    """One loop, iteration by iteration: what its counters are, and what products read."""

    constants: Mapping[str, int]
    numbers: dict[str, int] = field(default_factory=dict)
    flags: dict[str, bool] = field(default_factory=dict)
    stages: dict[str, Stage] = field(default_factory=dict)
    # By products under way, the oldest first.
    read: list[frozenset[Stage]] = field(default_factory=list)

    def through(self, head: re.Match[str], body: Sequence[str]) -> list[str]:
        """The stages that are overwritten, at the first iteration with one."""
        carried = _CARRIED.findall(head[4] or "")
        self.numbers |= {n: self.constants[v] for n, v in carried if v in self.constants}
        for iteration in range(self._count(head)):
            found = [text for line in body if (text := self._overwrites(line)) is not None]
            if found:
                return [f"{text} in iteration {iteration}" for text in found]
            left = _OPERAND.findall(body[-1].partition(" : ")[0])
            after = {n: self._number(v) for (n, _), v in zip(carried, left, strict=False)}
            self.numbers = {n: v for n, v in after.items() if v is not None}
        return []

    def _count(self, head: re.Match[str]) -> int:
        first, stop, step = (self.constants.get(head[n]) for n in (1, 2, 3))
        if first is None or stop is None or not step:
            return _MOST
        return min(_MOST, -(-(stop - first) // step))

    def _number(self, name: str) -> int | None:
        return self.numbers.get(name, self.constants.get(name))

    def _overwrites(self, line: str) -> str | None:
        """Do what a line says; the stage that it overwrites."""
        parts = _LINE.match(line)
        if parts is None:
            return None
        result, operation, text = parts[1] or "", parts[2], parts[3]
        names = _OPERAND.findall(text)
        kind = operation.partition(".")[2]
        if operation.startswith("arith."):
            self._count_on(result, kind, text, names)
        elif kind == "memdesc_index":
            number = self._number(names[1]) if len(names) > 1 else None
            self.stages.pop(result, None)
            if number is not None:
                self.stages[result] = names[0], number
        elif kind.startswith("memdesc_") and names and names[0] in self.stages:
            self.stages[result] = self.stages[names[0]]
        elif kind == "warp_group_dot":
            reads = frozenset(self.stages[n] for n in names[:2] if n in self.stages)
            self.read = [*self.read, reads] if "isAsync = true" in text else []
        elif kind == "warp_group_dot_wait":
            pending = int(found[1]) if (found := _PENDING.search(text)) else 0
            self.read = self.read[len(self.read) - min(pending, len(self.read)) :]
        elif kind in ("async_copy_global_to_local", "async_tma_copy_global_to_local"):
            under_way = frozenset[Stage]().union(*self.read)
            for stage in (self.stages[n] for n in names if n in self.stages):
                if stage in under_way:
                    return f"{stage[0]}[{stage[1]}]"
        return None

    def _count_on(self, result: str, kind: str, text: str, names: Sequence[str]) -> None:
        values = [self._number(n) for n in names]
        self.numbers.pop(result, None)
        self.flags.pop(result, None)
        if kind == "select" and len(names) == 3 and names[0] in self.flags:
            chosen = values[1] if self.flags[names[0]] else values[2]
            if chosen is not None:
                self.numbers[result] = chosen
        if len(values) != 2 or values[0] is None or values[1] is None:
            return
        if kind == "addi":
            self.numbers[result] = values[0] + values[1]
        elif kind == "cmpi" and text.startswith("sge,"):
            self.flags[result] = values[0] >= values[1]
