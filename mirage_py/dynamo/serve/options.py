"""The backend's ``mode=`` and ``options=`` of torch.compile."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import NoneType
from typing import Any

from mirage_py.arguments import check_type, path_of, shown
from mirage_py.errors import InputError
from mirage_py.pipeline.selection.request import Request
from mirage_py.pipeline.selection.time_budget import USUAL_S
from mirage_py.shapes.policy import BUCKETED, POLICIES, ShapePolicy

_CHOICES = {
    "effort": ("none", "quick", "full"),
    "rest": ("inductor", "eager"),
    "on_cpu": ("rest", "reference"),
    "shapes": POLICIES,
    "whole_graph": ("auto", "race", "trust"),
    "graph": ("auto", "off", "full"),
    "chain": ("off", "race", "on"),
}
_TYPES: dict[str, tuple[type, ...]] = {
    "target": (str,),
    "budget": (int, float, NoneType),
    "seed": (int,),
    "cache": (bool,),
    "cuda_graphs": (bool,),
    "max_regions": (int, NoneType),
    "max_sizes": (int, NoneType),
    "min_gain": (int, float),
    "inductor": (Mapping,),
    "report": (str,),
    "edges": (tuple, list),
    "scheduler": (str,),
}


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """How a model is compiled; every field is a key of torch.compile's ``options=``.

    * ``effort``, ``target``, ``seed``, ``cache``: as for ``superoptimize``; ``budget`` in seconds,
      for each distinct region.
    * ``rest``: what runs everything outside regions, ``inductor`` or ``eager``.
    * ``on_cpu``: what CPU tensors get, for which there are no kernels. ``rest`` leaves the whole
      graph to ``rest``. ``reference`` cuts regions all the same and runs the program of each as
      plain PyTorch, so that everything but the kernels can be tested without a GPU.
    * ``inductor``: settings of Inductor (``torch._inductor.config``), over those of the mode.
    * ``max_regions``: how many distinct regions are optimised at most, the most valuable first.
    * ``max_sizes``: for how many sets or buckets of sizes a region is optimised at most; beyond,
      the kernel of another bucket serves where it is right, and else the region's own operators.
    * ``min_gain``: the share of its modelled time that a region has to save.
    * ``cuda_graphs``: whether the compiled graph is captured.
    * ``shapes``: how a region with symbolic sizes is served. ``bucketed``: one kernel for each
      bucket of them, which end at ``edges``, or where ``regions/sized_regions.py`` says.
      ``symbolic``: one for all, tuned for the sizes met first. ``static``: one for each size.
    * ``scheduler``: address of a farm that searches and compiles the regions.
    * ``whole_graph``: whether a graph with regions has to beat the same graph by Inductor alone.
      ``race``: both are timed, and the faster one is used, for which Inductor compiles the graph
      twice. ``trust``: regions are used, each of which is faster by itself. ``auto``: ``race``
      where regions are measured: on a GPU, and not with effort none.
    * ``report``: a file for a report on the whole model, one HTML file that grows with each graph.
    * ``graph``: whether graphs for inference are rewritten as a whole before they are cut, by
      substitutions. ``auto``: those with constant weights, as ``freezing`` makes them.
      ``full``: all, within larger bounds; on a GPU operators are measured. ``off``: none.
    * ``chain``: whether regions are launched as a chain on Hopper, each starting early behind what
      lies in front. ``race``: where whole graphs are timed, with and without. ``on``: always.
    """

    effort: str = "quick"
    target: str = "auto"
    budget: float | None = None
    seed: int = 0
    cache: bool = True
    rest: str = "inductor"
    inductor: Mapping[str, Any] = field(default_factory=dict)
    on_cpu: str = "rest"
    max_regions: int | None = None
    max_sizes: int | None = 8
    min_gain: float = 0.05
    cuda_graphs: bool = False
    shapes: str = BUCKETED
    edges: Sequence[int] = ()
    whole_graph: str = "auto"
    report: str = ""
    scheduler: str = ""
    graph: str = "auto"
    chain: str = "off"

    @property
    def request(self) -> Request:
        """What the pipeline is asked. Raises InputError for an unknown value."""
        return Request(
            self.target,
            effort=self.effort,
            budget=self.budget,
            seed=self.seed,
            scheduler=self.scheduler,
        )

    @property
    def policy(self) -> ShapePolicy:
        """Buckets of symbolic sizes. Raises InputError for edges that do not rise."""
        return ShapePolicy(self.shapes, tuple(self.edges))

    def with_share(self, regions: int) -> BackendOptions:
        """The same with the budget, or the usual one, as that of so many regions together."""
        budget = USUAL_S.get(self.effort) if self.budget is None else self.budget
        return self if budget is None else replace(self, budget=budget / regions)


_MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "reduce-overhead": {"cuda_graphs": True},
    "max-autotune": {"effort": "full", "cuda_graphs": True},
    "max-autotune-no-cudagraphs": {"effort": "full"},
}


def backend_options(
    mode: str | None = None, options: Mapping[str, Any] | None = None
) -> BackendOptions:
    """The options of a call of torch.compile; ``options`` win over what ``mode`` sets.

    Raises InputError for a mode, a key or a value that there is not, with those that there are.
    """
    check_type("mode", mode, (str, NoneType), where="torch.compile")
    check_type("options", options, (Mapping, NoneType), where="torch.compile")
    if mode is not None and mode not in _MODES:
        raise InputError(
            f"unknown mode {shown(mode)}", where="torch.compile", repair=f"use {', '.join(_MODES)}"
        )
    chosen = replace(BackendOptions(), **_MODES[mode or "default"])
    for key, value in (options or {}).items():
        _check(key, value)
        chosen = replace(chosen, **{key: value})
    # An unknown target, a seed that is too large, and edges that do not rise are errors here too.
    _ = chosen.request, chosen.policy
    return chosen


def _check(key: str, value: object) -> None:
    check_type("options", key, (str,), where="torch.compile")
    known = [f.name for f in fields(BackendOptions)]
    if key not in known:
        close = difflib.get_close_matches(key, known, 1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        raise InputError(
            f"unknown option {shown(key)}",
            where="torch.compile",
            repair=f"{hint}the options are {', '.join(known)}",
        )
    if key in _CHOICES and value not in _CHOICES[key]:
        raise InputError(
            f"'{key}' is {shown(value)}",
            where="torch.compile",
            repair=f"use {', '.join(_CHOICES[key])}",
        )
    if key in _TYPES:
        check_type(key, value, _TYPES[key], where="torch.compile")
    if key == "report" and value:
        path_of(key, value)
    # Not below 0, and a number: NaN is neither below nor above.
    if isinstance(value, int | float) and not value >= 0:
        raise InputError(
            f"'{key}' is {shown(value)}", where="torch.compile", repair="pass 0 or more"
        )
