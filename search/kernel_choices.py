"""The best ways to tile and launch one kernel, on its own.

Kernels of one µGraph share nothing but memory, so each is ranked by itself; equal kernels of
several µGraphs are ranked once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from math import inf

from mirage_py.search.cost_model import Estimate, KernelModel
from mirage_py.search.launches import launch_options
from mirage_py.search.library_model import clearing_us, library_estimate
from mirage_py.search.residency import tensors_of
from mirage_py.search.tilings import tilings
from mirage_py.targets import Target
from mirage_py.ugraph.plan import LaunchOptions
from mirage_py.ugraph.ugraph import BlockGraph, Kernel, LibraryCall, UGraph

# The model tells tiles apart better than warps and stages; near-copies of a plan find nothing.
_PER_TILING = 3


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """A kernel with tiles, how it is launched, and what the model says of it."""

    kernel: Kernel
    options: LaunchOptions
    estimate: Estimate

    @property
    def tiling(self) -> Hashable:
        """Equal for choices that differ in launch options only; an order of axes is a tiling."""
        if isinstance(self.kernel, LibraryCall):
            return self.kernel.op
        loops = tuple((s.loop, s.tile) for s in self.kernel.sections)
        return self.kernel.grid, loops, self.options.flag("axes")


class KernelRanker:
    """Ranks kernels for one target and remembers what it has ranked."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._known: dict[Hashable, tuple[KernelChoice, ...]] = {}

    def ranked(
        self, ugraph: UGraph, number: int, in_cache: frozenset[str], parts: tuple[str, ...]
    ) -> tuple[KernelChoice, ...]:
        """The choices for one kernel of a µGraph that fit, best first, without near-copies.

        ``parts`` are the dimensions that number parts.
        """
        kernel = ugraph.kernels[number]
        if isinstance(kernel, LibraryCall):
            predicted = library_estimate(kernel, ugraph, self._target, in_cache)
            return (KernelChoice(kernel, LaunchOptions(), predicted),)
        key = self._key(ugraph, kernel, in_cache, parts)
        if key not in self._known:
            self._known[key] = self._rank(ugraph, kernel, in_cache, parts)
        return tuple(
            replace(c, kernel=replace(c.kernel, name=kernel.name)) for c in self._known[key]
        )

    def _key(
        self, ugraph: UGraph, block: BlockGraph, in_cache: frozenset[str], parts: tuple[str, ...]
    ) -> Hashable:
        """All that decides: the body, the extents, the tensors and where they are."""
        names = tensors_of(block)
        tensors = tuple(ugraph.tensors[t] for t in names)
        cached = tuple(t in in_cache for t in names)
        body = block.grid, block.nodes, block.sections
        return body, ugraph.program.dims, tensors, cached, parts

    def _rank(
        self, ugraph: UGraph, block: BlockGraph, in_cache: frozenset[str], parts: tuple[str, ...]
    ) -> tuple[KernelChoice, ...]:
        added = dict.fromkeys(n.access.tensor for n in block.nodes if n.op == "store_add")
        clearing = sum(clearing_us(ugraph.tensors[t], self._target, in_cache) for t in added)
        found = []
        for tiled in tilings(ugraph.scope, block, parts):
            model = KernelModel(tiled, self._target, in_cache)
            for options in launch_options(tiled):
                predicted = model.estimate(options)
                if predicted.time_us < inf:
                    predicted = replace(predicted, time_us=predicted.time_us + clearing)
                    found.append(KernelChoice(tiled.block, options, predicted))
        found.sort(key=lambda c: c.estimate.time_us)
        return tuple(_without_copies(found))


def _without_copies(choices: Iterable[KernelChoice]) -> Iterable[KernelChoice]:
    counts: dict[Hashable, int] = {}
    for choice in choices:
        tiling = choice.tiling
        counts[tiling] = counts.get(tiling, 0) + 1
        if counts[tiling] <= _PER_TILING:
            yield choice
