"""The best ways to tile and launch one kernel, on its own.

Kernels of one µGraph share nothing but memory, so each is ranked by itself; equal kernels of
several µGraphs are ranked once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from math import inf

from mirage_py.search.cost_model import Estimate, KernelModel
from mirage_py.search.forms import Form
from mirage_py.search.launches import BackEnd, launch_options, usual_options
from mirage_py.search.library_model import clearing_us, library_estimate
from mirage_py.search.parts_a_thread import sharing_us
from mirage_py.search.residency import tensors_of
from mirage_py.search.tilings import tilings
from mirage_py.targets import Target
from mirage_py.ugraph.plan import LaunchOptions
from mirage_py.ugraph.ugraph import BlockGraph, Kernel, LibraryCall

# The model tells tiles apart better than warps and stages; near-copies of a plan find nothing.
_PER_TILING = 3
# Tilings that are tried with all launch options: those whose prediction with the usual ones is at
# most this much longer than the best, and not more than so many.
_PROMISING = 3.0
_MOST_TILINGS = 40
_DEEPER = 2


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """A kernel with tiles, how it is launched, and what the model says of it."""

    kernel: Kernel
    options: LaunchOptions
    estimate: Estimate

    @property
    def grid(self) -> Hashable:
        """The tiles of the grid; of a library call, which one it is."""
        return self.kernel.op if isinstance(self.kernel, LibraryCall) else self.kernel.grid

    @property
    def tiling(self) -> Hashable:
        """Equal for choices that differ in launch options only; an order of axes is a tiling."""
        if isinstance(self.kernel, LibraryCall):
            return self.kernel.op
        loops = tuple((s.loop, s.tile) for s in self.kernel.sections)
        return self.kernel.grid, loops, self.options.flag("axes")


class KernelRanker:
    """Ranks kernels for one target and remembers what it has ranked."""

    def __init__(
        self,
        target: Target,
        most_tilings: int = _MOST_TILINGS,
        backend: BackEnd = "triton",
    ) -> None:
        self.target = target
        self.backend = backend
        self._most_tilings = most_tilings
        self._ranked: dict[Hashable, tuple[KernelChoice, ...]] = {}
        self._probed: dict[Hashable, float] = {}

    def probe_us(self, form: Form) -> float:
        """A quick prediction for a form, from few of its tilings; infinite if nothing fits."""
        return sum(self._probe_us(form, n) for n in range(len(form.ugraph.kernels)))

    def ranked(self, form: Form, number: int) -> tuple[KernelChoice, ...]:
        """The choices for one kernel of a form that fit, best first, without near-copies."""
        kernel = form.ugraph.kernels[number]
        if isinstance(kernel, LibraryCall):
            return (KernelChoice(kernel, LaunchOptions(), self._library(form, number, kernel)),)
        key = _key(form, number, kernel)
        if key not in self._ranked:
            self._ranked[key] = self._rank(form, number, kernel)
        return tuple(
            replace(c, kernel=replace(c.kernel, name=kernel.name)) for c in self._ranked[key]
        )

    def _probe_us(self, form: Form, number: int) -> float:
        kernel = form.ugraph.kernels[number]
        if isinstance(kernel, LibraryCall):
            return self._library(form, number, kernel).time_us
        key = _key(form, number, kernel)
        if key in self._ranked:
            return next((c.estimate.time_us for c in self._ranked[key]), inf)
        if key not in self._probed:
            self._probed[key] = self._probe_block_us(form, number, kernel)
        return self._probed[key]

    def _probe_block_us(self, form: Form, number: int, block: BlockGraph) -> float:
        models = self._models(form, number, block, few=True)
        best_us = min((_usual_us(m) for m in models), default=inf)
        if best_us < inf:
            return best_us + self._clearing_us(form, number, block)
        return next((c.estimate.time_us for c in self.ranked(form, number)), inf)

    def _rank(self, form: Form, number: int, block: BlockGraph) -> tuple[KernelChoice, ...]:
        clearing_us = self._clearing_us(form, number, block)
        found = []
        for model in self._promising(form, number, block):
            for options in launch_options(model.kernel, self.backend, self.target):
                predicted = model.estimate(options)
                if predicted.time_us < inf:
                    extra_us = clearing_us
                    if self.backend == "cuda":
                        extra_us += sharing_us(model.kernel, options, form.parts)
                    predicted = replace(predicted, time_us=predicted.time_us + extra_us)
                    found.append(KernelChoice(model.kernel.block, options, predicted))
        found.sort(key=lambda c: c.estimate.time_us)
        return tuple(_without_copies(found))

    def _promising(self, form: Form, number: int, block: BlockGraph) -> list[KernelModel]:
        """The best tilings by the usual launch options; all where those fit none."""
        models = list(self._models(form, number, block, few=False))
        times_us = [_usual_us(m) for m in models]
        best_us = min(times_us, default=inf)
        if best_us == inf:
            return models
        order = sorted(range(len(models)), key=times_us.__getitem__)
        near = (n for n in order if times_us[n] <= _PROMISING * best_us)
        return [models[n] for n, _ in zip(near, range(self._most_tilings), strict=False)]

    def _models(
        self, form: Form, number: int, block: BlockGraph, *, few: bool
    ) -> Iterable[KernelModel]:
        scope, parts = form.ugraph.scope, form.parts
        for tiled in tilings(scope, block, parts, few=few, backend=self.backend):
            yield KernelModel(tiled, self.target, form.in_cache[number])

    def _library(self, form: Form, number: int, call: LibraryCall) -> Estimate:
        return library_estimate(call, form.ugraph, self.target, form.in_cache[number])

    def _clearing_us(self, form: Form, number: int, block: BlockGraph) -> float:
        """Every tensor that the kernel adds to is set to zero before."""
        tensors = (form.ugraph.tensors[t] for t in block.added_tensors)
        return sum(clearing_us(t, self.target, form.in_cache[number]) for t in tensors)


def _key(form: Form, number: int, block: BlockGraph) -> Hashable:
    """All that decides on a kernel: body, extents, tensors and where they are."""
    names = tensors_of(block)
    tensors = tuple(form.ugraph.tensors[t] for t in names)
    cached = tuple(t in form.in_cache[number] for t in names)
    used = dict.fromkeys(d for n in block.nodes for d in n.dims)
    used.update(dict.fromkeys(str(n.attr) for n in block.nodes if n.op == "size"))
    used.update(dict.fromkeys(a.dim for a in block.grid))
    dims = tuple(d for d in form.ugraph.program.dims if d.name in used)
    parts = tuple(d for d in form.parts if d in used)
    return block.grid, block.nodes, block.sections, dims, tensors, cached, parts


def _usual_us(model: KernelModel) -> float:
    """With the usual options, and with deeper pipelines, which small tiles need."""
    found = inf
    for options in usual_options(model.kernel):
        deeper = replace(options, num_stages=tuple(n + _DEEPER for n in options.num_stages))
        found = min(found, model.estimate(options).time_us, model.estimate(deeper).time_us)
    return found


def _without_copies(choices: Iterable[KernelChoice]) -> Iterable[KernelChoice]:
    counts: dict[Hashable, int] = {}
    for choice in choices:
        tiling = choice.tiling
        counts[tiling] = counts.get(tiling, 0) + 1
        if counts[tiling] <= _PER_TILING:
            yield choice
