"""Published search times that ours are compared with. Seconds; None is over ten hours.

Mirage: "A Multi-Level Superoptimizer for Tensor Programs", OSDI 2025, the ablation of its search on
RMSNorm. Its count of block operators includes the loads of a block and takes a sum of squares, its
mean and root over all iterations as one; ours counts computing operators alone (search/closure/
pool.py). So equal bounds do not mean equal spaces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Series:
    """``seconds`` for each of ``OPERATORS``."""

    name: str
    seconds: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class BuiltRun:
    """Mirage built from its sources and run on a machine of two cores with two threads.

    ``finished`` is whether it ended by itself within the limit; ``found`` are valid µGraphs.
    """

    program: str
    seconds: int
    finished: bool
    found: int


OPERATORS = (5, 6, 7, 8, 9, 10, 11)
MIRAGE: tuple[Series, ...] = (
    Series("Mirage, 8 threads", (11, 16, 22, 24, 26, 26, 28)),
    Series("Mirage, 1 thread", (58, 93, 150, 152, 166, 166, 183)),
    Series(
        "Mirage without abstract expressions", (768, 19_934, None, None, None, None, None)
    ),
)  # fmt: skip
MIRAGE_BUILT: tuple[BuiltRun, ...] = (
    BuiltRun("rmsnorm_matmul", 164, True, 23),
    BuiltRun("ntrans", 112, True, 9),
    BuiltRun("gated_mlp", 480, False, 32),
    BuiltRun("attention", 480, False, 0),
    BuiltRun("lora", 480, False, 0),
)


def document() -> Mapping[str, object]:
    """All of it as JSON data."""
    return {
        "operators": list(OPERATORS),
        "mirage_rmsnorm_s": {s.name: list(s.seconds) for s in MIRAGE},
        "mirage_built_2_threads": [
            {
                "program": run.program,
                "seconds": run.seconds,
                "finished": run.finished,
                "found": run.found,
            }
            for run in MIRAGE_BUILT
        ],
    }
