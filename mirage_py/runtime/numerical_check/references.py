"""The input sets of a numerical check and their references, prepared in the background.

A process for each set, as many at a time as cores and memory allow, in the order in which the sets
are needed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mirage_py.errors import CompileError
from mirage_py.runtime.process.executor import WorkerKind
from mirage_py.runtime.process.worker_pool import WorkerPool
from mirage_py.ugraph.ir.program import Program

# Large arrays come and go: glibc would take the memory of each from the kernel anew, page by page,
# which is half of the time (measured: causal attention, 2.7 s against 1.4 s, 1.2 s in large pages).
_ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    "MALLOC_ARENA_MAX": "1",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
# Inputs and references of a large program take minutes on a slow machine.
_KIND = WorkerKind("CPU", 900.0, 64 << 30, ("numpy",), _ENVIRONMENT)
# Threads of one process; the interpreter's own part keeps more from working at once.
_MOST_THREADS = 4
# Of each element of the outputs: its value, its error and its place, and the file that is written.
_OUTPUT_BYTES = 32
# What drawing inputs and evaluating windows takes beside.
_WINDOW_BYTES = 2 << 30
# From which share on it is worth saying how many results of a set are a matter of rounding: a few
# of many random ones always lie that close to 0.
_MANY = 0.01


@dataclass(frozen=True, slots=True)
class Known:
    """What there is to compare with: ``share`` is the smallest of a set's outputs that were
    evaluated in float64, ``vague`` has by set how many of those rounding may turn into anything,
    and ``mild`` names the sets whose numbers might have been larger, had there been time.
    """

    share: float = 1.0
    vague: Mapping[str, float] = field(default_factory=dict)
    mild: tuple[str, ...] = ()

    def with_more(self, other: Known) -> Known:
        """Both together."""
        vague = {**self.vague, **other.vague}
        return Known(min(self.share, other.share), vague, (*self.mild, *other.mild))

    def notes(self) -> tuple[str, ...]:
        """What of it a user should know."""
        notes = []
        if self.share < 1.0:
            notes.append(
                f"of the outputs {self.share:.1%} were compared with float64 on some input sets, "
                "the first and the last elements among them: all would have taken too long"
            )
        many = [f"{v:.1%} of the {name} set's" for name, v in self.vague.items() if v >= _MANY]
        if many:
            notes.append(
                "results for which rounding may be more than they are, so that they say little: "
                + ", ".join(many)
            )
        if self.mild:
            notes.append(f"there was no time to look for larger numbers: {', '.join(self.mild)}")
        return tuple(notes)


class References:
    """Prepares the sets ``names`` through the worker service ``task``, beginning at once.

    ``deadlines`` (of ``time.monotonic``) are when the sets should be ready, by name: of what is not
    done by then only a part is evaluated.
    """

    def __init__(
        self,
        program: Program,
        task: Mapping[str, Any],
        names: Sequence[str],
        deadlines: Mapping[str, float],
    ) -> None:
        cores = len(os.sched_getaffinity(0))
        workers = at_a_time(program, len(names), cores, _available_bytes())
        threads = max(1, min(_MOST_THREADS, cores // workers))
        tasks = [
            {**task, "sets": [n], "threads": threads, "deadline": deadlines.get(n)} for n in names
        ]
        self._pool = WorkerPool(workers, _KIND)
        self._futures = {n: self._pool.submit(t) for n, t in zip(names, tasks, strict=True)}

    def are_ready(self, names: Sequence[str]) -> bool:
        """Whether ``wait`` would return at once."""
        return all(self._futures[n].done() for n in names)

    def wait(self, names: Sequence[str]) -> Known:
        """Return when these sets are ready: what is known of them. Raises CompileError where one
        failed.
        """
        known = Known()
        for reply in [self._futures[n].result() for n in names]:
            if not reply.done:
                raise CompileError("the numerical check cannot be set up", why=reply.reason)
            for name, (share, vague, is_mild) in reply.value.items():
                known = known.with_more(Known(share, {name: vague}, (name,) if is_mild else ()))
        return known

    def close(self) -> None:
        """Stop the workers, whether they are done or not."""
        self._pool.cancel(self._futures.values())


def at_a_time(program: Program, sets: int, cores: int, free_bytes: int) -> int:
    """How many processes prepare ``sets``: with two cores each, but never less than two, and
    in half of the memory.
    """
    each = _WINDOW_BYTES + _OUTPUT_BYTES * sum(o.tensor.elements for o in program.outputs)
    return max(1, min(sets, max(2, cores // 2), free_bytes // 2 // each))


def _available_bytes() -> int:
    """Memory that can be had without swapping, as Linux says; everything where it does not."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(x.split()[1]) << 10 for x in lines if x.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return 1 << 62
