"""The options of a run of the suite."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.peers import PEER_NAMES
from benchmarks.workloads.suites import ALL, SMOKE, named
from benchmarks.workloads.workload import Workload
from mirage_py.errors import InputError
from mirage_py.runtime.base.emission import BACKENDS

PLANS = {"quick": 160, "full": 640}
EFFORTS = tuple(PLANS)
_BOTH = "auto"
DEFAULT_FOLDER = Path("bench-out")


@dataclass(frozen=True, slots=True)
class Options:
    """``families`` is a folder of searches made before; ``seconds`` bound the whole run and
    ``row_seconds`` one row; ``gpus`` are as many of those visible, None all; with a ``scheduler``,
    of those of its farm, which are of ``gpu_model``.

    ``peers`` and ``only`` are empty where all are meant. Raises InputError for unknown names.
    """

    suite: str = ALL
    only: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    folder: Path = DEFAULT_FOLDER
    families: Path | None = None
    plans: int | None = None
    effort: str = "quick"
    backend: str = "triton"
    gpus: int | None = None
    scheduler: str = ""
    gpu_model: str = ""
    seconds: float | None = None
    row_seconds: float = 300.0
    resume: bool = False
    commit: str = ""
    command: str = ""

    def __post_init__(self) -> None:
        if self.effort not in EFFORTS:
            raise InputError(f"unknown effort '{self.effort}'", repair=f"use {' or '.join(PLANS)}")
        if self.backend not in (_BOTH, *BACKENDS):
            names = " or ".join((_BOTH, *BACKENDS))
            raise InputError(f"unknown back end '{self.backend}'", repair=f"use {names}")
        if self.families is not None and not self.families.is_dir():
            raise InputError(
                f"there is no folder {self.families}",
                repair=f"python -m benchmarks.suite.families {self.families}",
            )
        if unknown := [n for n in self.peers if n not in PEER_NAMES]:
            raise InputError(
                f"unknown peer {', '.join(unknown)}", repair=f"use some of {', '.join(PEER_NAMES)}"
            )
        named(self.suite, self.only)

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """What is measured."""
        return named(self.suite, self.only)

    @property
    def most_plans(self) -> int:
        """How many plans of a workload are tuned."""
        return self.plans or PLANS[self.effort]

    @property
    def is_smoke(self) -> bool:
        """Whether nothing is to be measured, GPU or not."""
        return self.suite == SMOKE
