"""A request: how to optimise, as one value that is checked when it is made."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from mirage_py.arguments import check_callable, check_type, path_of, shown
from mirage_py.errors import InputError
from mirage_py.pipeline.selection.time_budget import PLANS
from mirage_py.pipeline.trace.trace import Trace
from mirage_py.progress import stage_of
from mirage_py.targets import target as target_named

if TYPE_CHECKING:
    from mirage_py.search.enumerate.search import SearchLimits
    from mirage_py.ugraph.ir.program import Program

Progress = Callable[[str], None]
Stop = Callable[[], bool]
Baselines = Mapping[str, Callable[..., Any]]

AUTO = "auto"
_BACKENDS = (AUTO, "triton", "cuda")
_PRECISIONS = (None, "ieee", "tf32")
# Seeds are below it: what torch's and numpy's generators both take.
SEEDS = 1 << 63


_TYPES: dict[str, tuple[type, ...]] = {
    "target": (str,),
    "backend": (str,),
    "effort": (str,),
    "budget": (int, float, NoneType),
    "seed": (int,),
    "baselines": (Mapping, NoneType),
    "counts_host": (bool,),
    "rows": (tuple,),
    "streaming": (bool,),
    "fp32_precision": (str, NoneType),
    "writes": (str,),
    "scheduler": (str,),
    "trace": (Trace,),
    "part": (str,),
    "begun": (float, NoneType),
}


def check_types(options: object, types: Mapping[str, tuple[type, ...]]) -> None:
    """InputError for a field that is of none of its types."""
    for name, kinds in types.items():
        check_type(name, getattr(options, name), kinds)


# What Dask takes: a protocol, and a place that it knows.
_ADDRESS = re.compile(r"[a-z]+://[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class Request:
    """How to optimise; the command line's options by the same names.

    ``budget``       in seconds, of the whole optimisation; ``math.inf`` for no end
    ``limits``       of the search; None for the usual ones
    ``baselines``    torch functions of the program's inputs, by name
    ``progress``     is told what is being done, a ``mirage_py.progress.Stage``
    ``should_stop``  asked now and then: the result is the best so far
    ``journal``      a file that a search which was cut off goes on from
    ``fp32_precision``  how exact matmuls of float32 are, ``ieee`` or ``tf32``; None for what the
                     program says, which for a torch function is torch's setting
    ``writes``       what a call writes after its kernels, which is timed with them
    ``scheduler``    address of a farm that searches and compiles; without one this machine does
    ``trace``        writes every stage to a folder; by default there is none
    ``part``         the part of a program that this is about, in progress and trace
    ``rows``         dimensions whose points are rows: only plans that compute each row alike, bit
                     by bit, however many there are; the fastest of them serves, also where the
                     program itself is faster
    ``streaming``    also plans for a chain of kernels; the fastest is a result beside the best
    ``counts_host``  whether what a call takes of the host counts, as in a loop without CUDA graphs
    ``begun``        when the call began that waits for this, of ``time.monotonic``: what tracing it
                     took is of the usual budget

    Raises InputError for an unknown value.
    """

    target: str = AUTO
    backend: str = AUTO
    effort: str = "quick"
    budget: float | None = None
    seed: int = 0
    limits: SearchLimits | None = None
    baselines: Baselines | None = None
    progress: Progress = lambda _: None
    should_stop: Stop = lambda: False
    journal: Path | None = None
    counts_host: bool = False
    rows: tuple[str, ...] = ()
    streaming: bool = False
    fp32_precision: str | None = None
    writes: str = ""
    scheduler: str = ""
    trace: Trace = field(default_factory=lambda: Trace(None), compare=False)
    part: str = ""
    begun: float | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_types(self, _TYPES)
        self._check_search()
        if self.target != AUTO:
            target_named(self.target)
        if self.effort not in PLANS:
            raise InputError(
                f"unknown effort {shown(self.effort)}", repair="use none, quick or full"
            )
        if self.backend not in _BACKENDS:
            raise InputError(
                f"unknown back end {shown(self.backend)}", repair="use auto, triton or cuda"
            )
        if self.fp32_precision not in _PRECISIONS:
            raise InputError(
                f"unknown precision {shown(self.fp32_precision)}", repair="use ieee or tf32"
            )
        if self.budget is not None and not _is_budget(self.budget):
            raise InputError(
                f"{shown(self.budget)} is no budget",
                why="it is in seconds, for the whole optimisation",
                repair="pass 0 or more, math.inf for no end, or None for what the effort takes",
            )
        if self.scheduler and not _ADDRESS.fullmatch(self.scheduler):
            raise InputError(
                f"{shown(self.scheduler)} is no address of a scheduler",
                repair="pass one such as tcp://host:8786 or tls://host:8786",
            )
        if not 0 <= self.seed < SEEDS:
            raise InputError(
                f"{shown(self.seed)} is no seed", repair="pass a whole number from 0 to 2^63 - 1"
            )

    def about(self, program: Program) -> Program:
        """The program, held to what is asked for."""
        if self.fp32_precision is None:
            return program
        from mirage_py.ugraph.ir.dtypes import Fp32Precision

        return program.held_to(Fp32Precision(self.fp32_precision))

    def named(self, name: str) -> Request:
        """The same with progress that says of what it is."""
        return replace(self, progress=lambda text: self.progress(stage_of(name, text)), part=name)

    def _check_search(self) -> None:
        if self.limits is not None:
            from mirage_py.search.enumerate.search import SearchLimits

            check_type("limits", self.limits, (SearchLimits, NoneType))
        for baseline in (self.baselines or {}).values():
            check_callable("baselines", baseline)
        check_callable("progress", self.progress)
        check_callable("should_stop", self.should_stop)
        if self.journal is not None:
            object.__setattr__(self, "journal", path_of("journal", self.journal))


def _is_budget(seconds: float) -> bool:
    try:
        return float(seconds) >= 0  # NaN is not
    except OverflowError:  # a whole number that no clock adds
        return False
