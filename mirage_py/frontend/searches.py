"""The search settings of a decorated function: its options, and the pipeline they describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any

import torch

from mirage_py.display import shown_progress
from mirage_py.errors import InputError
from mirage_py.frontend.dynamic_axes import Declared, check_axes
from mirage_py.pipeline.selection.request import Request, check_types
from mirage_py.shapes.policy import BUCKETED, SYMBOLIC, ShapePolicy
from mirage_py.ugraph.ir.program import Program

# Takes the program's inputs in order; returns its output, or a tuple of several. An attribute
# ``description`` says in a line what it is, for the dispatch table.
Kernel = Callable[..., "torch.Tensor | tuple[torch.Tensor, ...]"]

# (program, its inputs, the function itself as a Kernel) -> the fastest kernel found.
Optimizer = Callable[[Program, tuple[torch.Tensor, ...], Kernel], Kernel]

# (program at the sizes to tune for, its dimensions of many sizes, the function) -> a kernel for
# those that its attribute ``validity`` says.
SizedOptimizer = Callable[[Program, tuple[str, ...], Kernel], Kernel]


_TYPES: dict[str, tuple[type, ...]] = {
    "strict": (bool,),
    "cache": (bool,),
    "shapes": (str, NoneType),
    "edges": (tuple,),
    "plan": (str, NoneType),
    "invariant": (bool,),
}


@dataclass(frozen=True, slots=True)
class CallOptions:
    """The options of ``superoptimize``; ``budget`` is in seconds."""

    target: str = "auto"
    backend: str = "auto"
    effort: str = "quick"
    budget: float | None = None
    seed: int = 0
    strict: bool = False
    cache: bool = True
    shapes: str | None = None
    dynamic: Declared | None = None
    edges: tuple[int, ...] = ()
    plan: str | None = None
    invariant: bool = False

    def __post_init__(self) -> None:
        check_types(self, _TYPES)
        check_axes(self.dynamic)
        _ = self.policy  # an unknown one is an error here

    @property
    def request(self) -> Request:
        """What the pipeline is asked. Raises InputError for an unknown value."""
        return Request(
            self.target, self.backend, self.effort, self.budget, self.seed, counts_host=True
        )

    @property
    def policy(self) -> ShapePolicy:
        """What dynamic dimensions get."""
        if not self.invariant:
            return ShapePolicy(BUCKETED if self.shapes is None else self.shapes, self.edges)
        if self.shapes not in (None, SYMBOLIC):
            raise InputError(
                f"shapes={self.shapes!r} has several kernels",
                why="with invariant=True one serves any number of rows",
                repair="leave shapes out",
            )
        return ShapePolicy(SYMBOLIC, self.edges, invariant=True)


def default_optimizer(options: CallOptions, begun: float | None = None) -> Optimizer:
    """What finds kernels, for a call that has ``begun`` (of ``time.monotonic``); it says of each
    where it came from.
    """
    # Here and not above: the search is loaded when the first kernel is wanted.
    from mirage_py.cache.cached_results import is_cached
    from mirage_py.pipeline.cached_pipeline import optimizer_for, question_of, with_writes

    asked = replace(options.request, begun=begun)

    def prepare(program: Program, inputs: tuple[torch.Tensor, ...], fallback: Kernel) -> Kernel:
        known = options.cache and is_cached(question_of(program, with_writes(asked, fallback)))
        with shown_progress() as shown:
            optimize = optimizer_for(replace(asked, progress=shown), cache=options.cache)
            kernel: Kernel = optimize(program, inputs, fallback)
        if getattr(kernel, "plan", None) is not None:
            kernel.source = "cached" if known else "searched"  # type: ignore[attr-defined]
        return kernel

    return prepare


def default_sized_optimizer(options: CallOptions) -> SizedOptimizer:
    """What finds kernels of many sizes."""
    from mirage_py.pipeline.sized_kernels import sized_optimizer_for

    return sized_optimizer_for(options.request, cache=options.cache, invariant=options.invariant)


def cached_report(program: Program, options: CallOptions, writes: str = "") -> Mapping[str, Any]:
    """The report of a program's result, if the cache has it; empty otherwise."""
    from mirage_py.cache.cached_results import cached_artifact
    from mirage_py.pipeline.cached_pipeline import question_of

    asked = replace(options.request, writes=writes)
    held = cached_artifact(question_of(program, asked)) if options.cache else None
    return held.report if held is not None else {}
