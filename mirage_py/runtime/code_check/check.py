"""The checker of emitted code: PTX and launch in, faults (or why it was not checked) out."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mirage_py.errors import CompileError, InputError
from mirage_py.runtime.base.emission import EmittedKernel, emit_kernels
from mirage_py.runtime.code_check import accesses, effects, synchronization
from mirage_py.runtime.code_check.compile_ptx import compiled
from mirage_py.runtime.code_check.events import Event, Fault, Launch, UnsupportedError
from mirage_py.runtime.code_check.execute import EntryOfLaunch, WarpRun
from mirage_py.runtime.code_check.global_memory import GlobalMemory
from mirage_py.runtime.code_check.order import Order
from mirage_py.runtime.code_check.ptx.ptx import Entry, parse
from mirage_py.runtime.code_check.ptx.thread_bits import stored_bits
from mirage_py.runtime.code_check.wgmma_registers import register_faults
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph

# What they register is in force now.
REGISTERED = (accesses, effects, synchronization)
_MOST_BLOCKS = 1 << 15
_DEEP = 20_000
HOPPER = 90


@dataclass(frozen=True, slots=True)
class Effort:
    """What one check may cost: instructions of warps that are followed, events that are ordered."""

    instructions: int = 4_000_000
    events: int = 150_000


QUICK = Effort(20_000, 4_000)
_ASKED = "`mirage-py verify --code`"


@dataclass(frozen=True, slots=True)
class CodeReport:
    """Of one kernel. ``unsupported`` says why it was not checked, else it is empty. ``classes``: so
    many kinds of clusters of blocks there are, by all that they do in shared memory; one of each
    was ordered, and the addresses in global memory of all blocks were checked.
    """

    kernel: str
    faults: tuple[Fault, ...] = ()
    unsupported: str = ""
    blocks: int = 0
    classes: int = 0
    events: int = 0
    accesses: int = 0
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        """Checked, and nothing found."""
        return not self.faults and not self.unsupported

    def document(self) -> dict[str, object]:
        """As JSON."""
        return {
            "kernel": self.kernel,
            "checked": not self.unsupported,
            "faults": [str(fault) for fault in self.faults],
            "reason": self.unsupported,
            "blocks": self.blocks,
            "kinds_of_blocks": self.classes,
            "events": self.events,
            "accesses": self.accesses,
        }

    def __str__(self) -> str:
        if self.unsupported:
            return f"{self.kernel}: not checked because {self.unsupported}"
        if self.faults:
            return f"{self.kernel}: {self.faults[0]}"
        return (
            f"{self.kernel}: checked, {self.events} events of {self.classes} kinds of "
            f"{self.blocks} blocks in order, {self.accesses} accesses inside"
        )


def check_plan(
    plan: Plan, capability: int = HOPPER, effort: Effort | None = None
) -> tuple[CodeReport, ...]:
    """A report for each kernel of a plan; those of Triton are compiled for sm_``capability``.
    Raises ScheduleError where a kernel cannot be emitted.
    """
    blocks = [k for k in plan.ugraph.kernels if isinstance(k, BlockGraph)]
    reports = []
    for kernel, block in zip(emit_kernels(plan), blocks, strict=True):
        try:
            reports.append(check_kernel(kernel, plan.ugraph.program, block, capability, effort))
        except CompileError as error:
            reports.append(CodeReport(kernel.name, unsupported=error.what))
    return tuple(reports)


def check_winner(plan: Plan, capability: int) -> tuple[CodeReport, ...]:
    """``check_plan`` for about a second: of what Triton has compiled, and of small kernels."""
    why = f"it is left to {_ASKED}"
    try:
        if plan.backend == "triton":
            return check_plan(plan, capability, QUICK)
    except Exception as error:  # noqa: BLE001
        # A fault of the checker costs no plan.
        why = f"the checker failed: {error}"
    blocks = (kernel for kernel in plan.ugraph.kernels if isinstance(kernel, BlockGraph))
    return tuple(CodeReport(kernel.name, unsupported=why) for kernel in blocks)


def check_code(text: str, name: str, launch_for: Any, effort: Effort | None = None) -> CodeReport:
    """Check PTX. ``launch_for(entry)`` gives the launch."""
    started = time.perf_counter()
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _DEEP))
    try:
        entry = parse(text, name)
        return _checked(entry, launch_for(entry), started, effort or Effort())
    except UnsupportedError as reason:
        return CodeReport(name, unsupported=str(reason), seconds=time.perf_counter() - started)
    except InputError as error:
        return CodeReport(name, unsupported=error.what, seconds=time.perf_counter() - started)
    finally:
        sys.setrecursionlimit(limit)


def check_kernel(
    kernel: EmittedKernel,
    program: Program,
    block: BlockGraph,
    capability: int = HOPPER,
    effort: Effort | None = None,
) -> CodeReport:
    """Compile the kernel that was emitted for ``block`` to PTX and check that.

    Raises CompileError where there is no compiler or it takes the text not.
    """
    found = compiled(kernel, capability)
    return check_code(found.text, kernel.name, lambda e: found.launch(e, program, block), effort)


def _checked(entry: Entry, launch: Launch, started: float, effort: Effort) -> CodeReport:
    if launch.threads % 32:
        raise UnsupportedError(f"{launch.threads} threads are no whole warps")
    if launch.blocks > _MOST_BLOCKS:
        raise UnsupportedError(f"{launch.blocks} blocks are too many")
    faults = register_faults(entry)
    stored = stored_bits(entry)
    program, traces = traced(entry, launch, effort)
    memory = program.memory
    faults += memory.faults
    if not faults:
        faults += memory.unwritten()
    groups = classes(traces, launch)
    events = sum(map(len, traces)) * launch.cluster
    if events * len(groups) > effort.events:
        each = f"{events} events in each of {len(groups)} kinds of blocks"
        raise UnsupportedError(f"{each} are more than {effort.events}")
    done = 0
    for first in () if memory.faults else groups:
        blocks = range(first, first + launch.cluster)
        order = Order(traces, blocks, max(16, program.shared_end), launch, stored)
        faults += order.run()
        done += order.done
        if faults:
            break
    if not faults and memory.unsure:
        raise UnsupportedError(memory.unsure[0])
    return CodeReport(
        entry.name,
        tuple(faults),
        "",
        launch.blocks,
        len(groups),
        done,
        memory.accesses,
        time.perf_counter() - started,
    )


def traced(
    entry: Entry, launch: Launch, effort: Effort | None = None
) -> tuple[EntryOfLaunch, list[list[Event]]]:
    """What each warp of all blocks does, and the memory that it was followed with."""
    memory = GlobalMemory(launch, entry.parameters)
    most = (effort or Effort()).instructions
    program = EntryOfLaunch(entry, launch, memory, budget=most)
    return program, [WarpRun(program, warp).run() for warp in range(launch.threads // 32)]


def classes(traces: Sequence[Sequence[Event]], launch: Launch) -> list[int]:
    """The first block of one cluster of each kind: two are of one kind where all their warps do the
    same, place by place.
    """
    total = np.zeros(launch.blocks, np.uint64)
    factor = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        for trace in traces:
            for n, event in enumerate(trace):
                if not _differs(event):
                    continue
                mask = np.broadcast_to(event.mask, (launch.blocks, 32))
                row = _digest(mask, np.ones((1, 32), bool))
                if event.mask.any():
                    for value in _values((event.address, event.data)):
                        row = row * factor + _digest(value, mask)
                row[~mask.any(axis=1)] = 0  # others may have no such event at all
                total = (total ^ row * np.uint64(2 * n + 1)) * factor
            total = total * factor + np.uint64(1)
        kinds: dict[tuple[int, ...], int] = {}
        for first in range(0, launch.blocks, launch.cluster):
            key = tuple(int(x) for x in total[first : first + launch.cluster])
            kinds.setdefault(key, first)
    return list(kinds.values())


def _differs(event: Event) -> bool:
    values = (event.mask, event.address, event.data)
    return any(isinstance(v, np.ndarray) and v.shape[0] > 1 for v in _values(values))


def _values(value: Any) -> Any:
    if isinstance(value, tuple):
        for item in value:
            yield from _values(item)
    elif value is not None:
        yield value


def _digest(value: Any, mask: Any) -> Any:
    """A number for each block of what the threads of ``mask`` have."""
    weights = (np.arange(32, dtype=np.uint64) * np.uint64(2) + np.uint64(1)) * np.uint64(
        0xD1B54A32D192ED03
    )
    value = np.broadcast_to(np.asarray(value), np.broadcast_shapes(np.shape(value), mask.shape))
    kept = np.where(mask, value.astype(np.int64).astype(np.uint64) + np.uint64(1), np.uint64(0))
    mixed = (kept ^ kept >> np.uint64(29)) * weights
    mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed.sum(axis=1, dtype=np.uint64)
