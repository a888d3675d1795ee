"""Cached measurements of kernel tilings, compared under the usual launch options.

One model predicts the kernels of both back ends, which share the cache.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from math import inf

from mirage_py.codegen.tiling.descriptors import COPY_ENGINE
from mirage_py.search.model.cost_model import KernelModel
from mirage_py.search.model.launches import BackEnd, fed, usual_options
from mirage_py.search.rank.forms import Form, form_of, splits_worth_trying
from mirage_py.search.tilings.block_body import BlockBody
from mirage_py.search.tilings.residency import tensors_of
from mirage_py.search.tilings.roles import roles_of
from mirage_py.search.tilings.runs import run_bytes
from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.search.tilings.tilings import tiles_of, tilings
from mirage_py.targets import Target
from mirage_py.ugraph.ir.node import STORES
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

# Tilings that are tried with all launch options: those whose prediction with the usual ones is at
# most this much longer than the best, and not more than so many: plans have few of each structure.
_PROMISING = 3.0
_MOST_TILINGS = 16
# The same where a ranking is over.
_QUICKLY = 3


class KernelModels:
    """Finds the tilings of kernels for one target and remembers the ``most_tilings`` best."""

    def __init__(self, target: Target, most_tilings: int = _MOST_TILINGS) -> None:
        self.target = target
        self._most_tilings = most_tilings
        self._forms: dict[Hashable, Form] = {}
        self._splits: dict[str, tuple[Mapping[str, int], ...]] = {}
        self._bounds: dict[int, float] = {}
        self._numbers: dict[Hashable, int] = {}
        self._number_of: dict[tuple[Form, int], int] = {}
        self._keys: dict[tuple[int, BackEnd], tuple[Hashable, ...]] = {}
        self._probed: dict[Hashable, float] = {}
        self._promising: dict[Hashable, list[KernelModel]] = {}
        # Of kernels that have the same tiles to choose from.
        self._best_tiles: dict[Hashable, frozenset[Hashable]] = {}
        # What the few tilings of a probe found, until all of them are looked at.
        self._few: dict[Hashable, dict[Hashable, KernelModel]] = {}

    def form(self, family: UGraph, splits: Mapping[str, int]) -> Form:
        """The family at these numbers of splits, always the same object."""
        key = family.digest, tuple(splits.items())
        if key not in self._forms:
            self._forms[key] = form_of(family, self.target, splits)
        return self._forms[key]

    def splits(self, family: UGraph) -> tuple[Mapping[str, int], ...]:
        """The numbers of splits that it may have, the nominal one first."""
        if family.digest not in self._splits:
            self._splits[family.digest] = splits_worth_trying(family, self.target)
        return self._splits[family.digest]

    def bound_us(self, form: Form) -> float:
        """No plan of the form is predicted to be faster."""
        return sum(self._bound_us(form, n) for n in range(len(form.ugraph.kernels)))

    def _bound_us(self, form: Form, number: int) -> float:
        if not isinstance(form.ugraph.kernels[number], BlockGraph):
            return form.kernel_bound_us(number, self.target)
        key = self.kernel(form, number)
        if key not in self._bounds:
            self._bounds[key] = form.kernel_bound_us(number, self.target)
        return self._bounds[key]

    def kernel(self, form: Form, number: int) -> int:
        """The same for kernels of any forms that are equal but for their names."""
        place = form, number
        if place not in self._number_of:
            key = _kernel_key(form, number)
            self._number_of[place] = self._numbers.setdefault(key, len(self._numbers))
        return self._number_of[place]

    def probed_us(self, form: Form, number: int, backend: BackEnd) -> float:
        """The best prediction for a few tilings of a block graph; infinite if none of them fits."""
        key = self._key(form, number, backend)
        if key not in self._probed:
            tiled = self._tilings(form, number, backend, few=True)
            few = {tiles_of(t.block): self._model(t, form, number) for t in tiled}
            self._probed[key] = min((_usual_us(m) for m in few.values()), default=inf)
            self._few[key] = few
        return self._probed[key]

    def probed(self, form: Form, number: int, backend: BackEnd) -> list[KernelModel]:
        """The best of those few tilings, of what was not asked about further."""
        self.probed_us(form, number, backend)
        few = self._few.get(self._key(form, number, backend), {}).values()
        return sorted(few, key=_usual_us)[:_QUICKLY]

    def promising(self, form: Form, number: int, backend: BackEnd) -> list[KernelModel]:
        """The best tilings of a block graph by the usual options; all where those fit none."""
        key = self._key(form, number, backend)
        if key not in self._promising:
            known = self._few.pop(key, {})
            self._promising[key] = self._found(form, number, backend, known)
        return self._promising[key]

    def _found(
        self, form: Form, number: int, backend: BackEnd, known: Mapping[Hashable, KernelModel]
    ) -> list[KernelModel]:
        """The best tilings; of a kernel like one that was looked at, as at another number of splits
        or with another formula, among those that were the best there, and those that are known.
        """
        block = _block(form, number)
        alike = self._key(form, number, backend)[1:], _loops(block)
        found: list[KernelModel] = []
        for among in (self._best_tiles.get(alike), None):
            wanted = None if among is None else among.union(known)
            tiled = self._tilings(form, number, backend, few=False, among=wanted)
            models = [known.get(tiles_of(t.block)) or self._model(t, form, number) for t in tiled]
            found = self._best(models)
            if found and _usual_us(found[0]) < inf:
                tiles = frozenset(tiles_of(m.kernel.block) for m in found)
                self._best_tiles.setdefault(alike, tiles)
                break
        return found

    def _best(self, models: list[KernelModel]) -> list[KernelModel]:
        times_us = [_usual_us(m) for m in models]
        best_us = min(times_us, default=inf)
        if best_us == inf:
            return models
        order = sorted(
            range(len(models)), key=lambda n: (times_us[n], -_run_bytes(models[n].kernel))
        )
        near = (n for n in order if times_us[n] <= _PROMISING * best_us)
        return [models[n] for n, _ in zip(near, range(self._most_tilings), strict=False)]

    def _tilings(
        self,
        form: Form,
        number: int,
        backend: BackEnd,
        *,
        few: bool,
        among: Collection[Hashable] | None = None,
    ) -> Iterator[TiledKernel]:
        block, scope = _block(form, number), form.ugraph.scope
        return tilings(scope, block, form.splits, few=few, backend=backend, among=among)

    def _model(self, tiled: TiledKernel, form: Form, number: int) -> KernelModel:
        return KernelModel(tiled, self.target, form.in_cache[number])

    def _key(self, form: Form, number: int, backend: BackEnd) -> tuple[Hashable, ...]:
        """All that decides on the tilings: the back end only by the roles of dimensions."""
        place = self.kernel(form, number), backend
        if place not in self._keys:
            roles = roles_of(form.ugraph.scope, _block(form, number), form.splits, backend)
            # What threads make of codes is work of CUDA kernels alone.
            own = backend if BlockBody(form.ugraph.scope, _block(form, number)).codes else ""
            self._keys[place] = place[0], roles, own
        return self._keys[place]


def _kernel_key(form: Form, number: int) -> Hashable:
    """All that decides on a kernel: body, extents, tensors and where they are."""
    block = _block(form, number)
    names = tensors_of(block)
    tensors = tuple(form.ugraph.tensors[t] for t in names)
    cached = tuple(t in form.in_cache[number] for t in names)
    used = dict.fromkeys(d for n in block.nodes for d in n.dims)
    used.update(dict.fromkeys(str(n.attr) for n in block.nodes if n.op == "size"))
    used.update(dict.fromkeys(a.dim for a in block.grid))
    dims = tuple(d for d in form.ugraph.program.dims if d.name in used)
    splits = tuple(d for d in form.splits if d in used)
    return block.grid, block.nodes, block.sections, dims, tensors, cached, splits


def _block(form: Form, number: int) -> BlockGraph:
    block = form.ugraph.kernels[number]
    assert isinstance(block, BlockGraph)
    return block


def _loops(block: BlockGraph) -> Hashable:
    """What the tiles of a block graph are of."""
    values = tuple((n.op, n.args, n.dims) for n in block.nodes)
    return tuple(a.dim for a in block.grid), tuple(s.loop for s in block.sections), values


def _run_bytes(kernel: TiledKernel) -> int:
    """Bytes that lie side by side in a block's tile of the largest tensor: of tiles that the model
    takes for equal, memory likes those with long runs.
    """
    nodes = kernel.block.nodes
    accesses = [k for k, n in enumerate(nodes) if n.op == "load" or n.op in STORES]
    largest = max(accesses, key=lambda k: kernel.scope.tensors[nodes[k].access.tensor].bytes)
    return run_bytes(kernel, largest)


def _usual_us(model: KernelModel) -> float:
    usual = tuple(usual_options(model.kernel))
    found = min(model.estimate(options).time_us for options in usual)
    if found < inf or model.target.capability != COPY_ENGINE or not model.kernel.dots:
        return found
    # Fed by a producer, a thread needs fewer registers.
    return min(model.estimate(fed(options)).time_us for options in usual)
