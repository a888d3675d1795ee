"""The best tilings and launch options of one kernel, ranked on its own.

Kernels of one µGraph share nothing but memory, so each is ranked by itself; equal kernels of
several µGraphs are ranked once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log2, prod

from mirage_py.search.model.cost_model import Estimate, KernelModel
from mirage_py.search.model.launches import BackEnd, launch_options
from mirage_py.search.model.library_model import clearing_us, library_estimate
from mirage_py.search.rank.forms import Form
from mirage_py.search.rank.kernel_models import KernelModels
from mirage_py.search.rank.window_choices import window_choices
from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.targets import Target
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel, LibraryCall, UGraph

_WARP = 32
_BEST_VALUES = 8
# For each factor of two away from the best: blocks that wait cost more than threads that work.
_FEWER_US = 0.3
_MORE_US = 0.12
_BEST_ROWS = 4
# Only decides where nothing else does.
_SHAPE_US = 0.005

# The model ranks tiles better than warps and stages; near-duplicates of a plan find nothing.
_PER_TILING = 3


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """A kernel with tiles, how it is launched, and what the model says of it."""

    kernel: Kernel
    options: LaunchConfig
    estimate: Estimate

    @property
    def grid(self) -> Hashable:
        """The tiles of the grid; of a library call, which one it is."""
        return self.kernel.op if isinstance(self.kernel, LibraryCall) else self.kernel.grid

    @property
    def tiling(self) -> Hashable:
        """Equal for choices that differ in launch options only; an order of axes is a tiling, and
        so is another precision or an excess of codes.
        """
        if isinstance(self.kernel, LibraryCall):
            return self.kernel.op
        loops = tuple((s.loop, s.tile) for s in self.kernel.sections)
        chosen = self.options
        return self.kernel.grid, loops, chosen.reversed_axes, chosen.precision, chosen.excess_codes


class KernelRanker:
    """Ranks kernels for one target and remembers what it has ranked. Rankers of several back ends
    may share ``models``.
    """

    def __init__(
        self,
        target: Target,
        backend: BackEnd = "triton",
        models: KernelModels | None = None,
    ) -> None:
        self.target = target
        self.backend = backend
        self._models = models or KernelModels(target)
        self._ranked: dict[int, tuple[KernelChoice, ...]] = {}
        self._probed: dict[int, float] = {}
        self._windows: dict[int, tuple[KernelChoice, ...]] = {}

    def form(self, family: UGraph, splits: Mapping[str, int]) -> Form:
        """The family at these numbers of splits."""
        return self._models.form(family, splits)

    def splits(self, family: UGraph) -> tuple[Mapping[str, int], ...]:
        """The numbers of splits that it may have, the nominal one first."""
        return self._models.splits(family)

    def bound_us(self, form: Form) -> float:
        """No plan of the form is predicted to be faster."""
        return self._models.bound_us(form)

    def probe_us(self, form: Form) -> float:
        """A quick prediction for a form, from few of its tilings; infinite if nothing fits."""
        return sum(self._probe_us(form, n) for n in range(len(form.ugraph.kernels)))

    def is_probed(self, form: Form) -> bool:
        """Whether that is known."""
        blocks = (n for n, k in enumerate(form.ugraph.kernels) if isinstance(k, BlockGraph))
        keys = [self._models.kernel(form, n) for n in blocks]
        return all(key in self._probed or key in self._ranked for key in keys)

    def ranked(self, form: Form, number: int) -> tuple[KernelChoice, ...]:
        """The choices for one kernel of a form that fit, best first, without near-copies."""
        kernel = form.ugraph.kernels[number]
        if isinstance(kernel, LibraryCall):
            return (KernelChoice(kernel, LaunchConfig(), self._library(form, number, kernel)),)
        key = self._models.kernel(form, number)
        if key not in self._ranked:
            self._ranked[key] = self._rank(form, number, kernel)
        return tuple(_named(c, kernel.name) for c in self._ranked[key])

    def ranked_quickly(self, form: Form, number: int) -> tuple[KernelChoice, ...]:
        """The same of the few tilings of a quick prediction, where one of them fits and no more is
        known.
        """
        kernel = form.ugraph.kernels[number]
        if isinstance(kernel, LibraryCall) or self._over_windows(form, number, kernel):
            return self.ranked(form, number)
        if self._models.kernel(form, number) in self._ranked:
            return self.ranked(form, number)
        found = self._choices(form, number, kernel, self._models.probed(form, number, self.backend))
        return found or self.ranked(form, number)

    def _probe_us(self, form: Form, number: int) -> float:
        kernel = form.ugraph.kernels[number]
        if isinstance(kernel, LibraryCall):
            return self._library(form, number, kernel).time_us
        key = self._models.kernel(form, number)
        if key in self._ranked:
            return next((c.estimate.time_us for c in self._ranked[key]), inf)
        if key not in self._probed:
            self._probed[key] = self._probe_block_us(form, number, kernel)
        return self._probed[key]

    def _probe_block_us(self, form: Form, number: int, block: BlockGraph) -> float:
        if self._over_windows(form, number, block):
            return self.ranked(form, number)[0].estimate.time_us
        best_us = self._models.probed_us(form, number, self.backend)
        if best_us < inf:
            return best_us + self._clearing_us(form, number, block)
        return next((c.estimate.time_us for c in self.ranked(form, number)), inf)

    def _rank(self, form: Form, number: int, block: BlockGraph) -> tuple[KernelChoice, ...]:
        windows = self._over_windows(form, number, block)
        if windows:
            return windows
        models = self._models.promising(form, number, self.backend)
        return self._choices(form, number, block, models)

    def _choices(
        self, form: Form, number: int, block: BlockGraph, models: Sequence[KernelModel]
    ) -> tuple[KernelChoice, ...]:
        clearing_us = self._clearing_us(form, number, block)
        found = [c for m in models for c in self._of_tiling(m, form.splits, clearing_us)]
        found.sort(key=lambda c: c.estimate.time_us)
        return tuple(found)

    def _over_windows(self, form: Form, number: int, block: BlockGraph) -> tuple[KernelChoice, ...]:
        """The choices for a kernel over windows, which are CUDA's; none for any other."""
        if self.backend != "cuda":
            return ()
        key = self._models.kernel(form, number)
        if key not in self._windows:
            found = window_choices(form.ugraph, block, form.in_cache[number], self.target)
            self._windows[key] = tuple(KernelChoice(*choice) for choice in found)
        return self._windows[key]

    def _of_tiling(
        self, model: KernelModel, splits: Sequence[str], clearing_us: float
    ) -> Iterator[KernelChoice]:
        """The best few ways to launch one tiling, for each order of axes and precision."""
        timed = []
        for options in launch_options(model.kernel, self.backend, self.target):
            time_us = model.estimate(options).time_us
            if time_us < inf:
                extra_us = clearing_us
                if self.backend == "cuda":
                    extra_us += sharing_us(model.kernel, options, splits)
                timed.append((time_us + extra_us, options))
        timed.sort(key=lambda t: t[0])
        counts: dict[Hashable, int] = {}
        for time_us, options in timed:
            order = options.reversed_axes, options.precision
            counts[order] = counts.get(order, 0) + 1
            if counts[order] <= _PER_TILING:
                predicted = replace(model.estimate(options), time_us=time_us)
                yield KernelChoice(model.kernel.block, options, predicted)

    def _library(self, form: Form, number: int, call: LibraryCall) -> Estimate:
        return library_estimate(call, form.ugraph, self.target, form.in_cache[number])

    def _clearing_us(self, form: Form, number: int, block: BlockGraph) -> float:
        """Every tensor that the kernel adds to is set to zero before."""
        tensors = (form.ugraph.tensors[t] for t in block.added_tensors)
        return sum(clearing_us(t, self.target, form.in_cache[number]) for t in tensors)


def _named(choice: KernelChoice, name: str) -> KernelChoice:
    """Equal kernels are ranked once, whatever their names."""
    if choice.kernel.name == name:
        return choice
    return replace(choice, kernel=replace(choice.kernel, name=name))


def sharing_us(kernel: TiledKernel, options: LaunchConfig, splits: Sequence[str]) -> float:
    """Time that the model leaves out, for a kernel that sums over ``splits`` without a matmul; 0
    for any other.

    A kernel that combines the partial results of a split reads little, and waits: for the kernel
    before it, for memory once, for its own warps. With few values per thread there are more blocks
    than the GPU starts at once; with many, a thread does in sequence what others could do in
    parallel. The model sees next to no difference. Measured on an H200 (attention of one token over
    8192 keys, and of 256 rows over 4096; 128 to 1024 blocks, 32 to 256 threads): 8 values were best
    by 0.1 to 1 us; among shapes of one size four short rows by 0.3 us, then one long row.
    """
    nodes = kernel.block.nodes
    if any(n.op == "matmul" for n in nodes) or any(a.dim in splits for a in kernel.block.grid):
        return 0.0
    reads = [n for n, _ in kernel.block.loads() if any(d in splits for d in nodes[n].dims)]
    if not reads:
        return 0.0
    widest = max(reads, key=kernel.elements.__getitem__)
    away = log2(kernel.elements[widest] / (_WARP * options.num_warps * _BEST_VALUES))
    rows = _rows(kernel, widest)
    shape_us = 0.0 if rows >= _BEST_ROWS else _SHAPE_US * rows
    return shape_us + (away * _MORE_US if away > 0 else -away * _FEWER_US)


def _rows(kernel: TiledKernel, load: int) -> int:
    """Rows of a block's tile of each split: positions that are not adjacent in memory."""
    node = kernel.block.nodes[load]
    strides = kernel.scope.tensors[node.access.tensor].element_strides
    pairs = zip(node.access.index, strides, strict=True)
    contiguous = {d for expr, stride in pairs if stride == 1 for d in expr.dims()}
    tiles = {a.dim: a.tile or 1 for a in kernel.block.grid}
    return prod(tiles.get(d, 1) for d in node.dims if d not in contiguous)
