"""Joint small sizes for two programs, under which their inputs still have equal shapes.

The programs name their dimensions as they like. What ties them together are the tensors: an axis
that both read by one dimension ties the two dimensions; an axis that both read as the same mixed
radix (h * 64 + d) ties them in pairs; any other axis keeps its size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import TypeGuard

import numpy as np

from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.node import Access
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.sizes.affine import radix_dims
from mirage_py.verify.sizes.shrink import fixed_dims

# Side (0 or 1) and dimension.
_Key = tuple[int, str]

# Of distinct small sizes as many as needed; 6 is left out as the multiple of two others.
_EXTENTS = (3, 4, 5, 7, 8, 9, 10, 11)


@dataclass(frozen=True, slots=True)
class JointSizes:
    """``left`` and ``right`` give every dimension of each program a size."""

    left: Mapping[str, int]
    right: Mapping[str, int]


def joint_small_sizes(
    left: Program, right: Program, outputs: Sequence[tuple[str, str]], seed: int
) -> JointSizes:
    """Small distinct sizes for dimensions that are free in both programs.

    Inputs are matched by name, ``outputs`` pairs the outputs' names.
    """
    ties = _Ties(left, right)
    for tensor in left.inputs:
        ties.tensor((_reads(left, tensor.name), _reads(right, tensor.name)), tensor.shape)
    for left_name, right_name in outputs:
        shape = left.tensors[left_name].shape
        ties.tensor((_written(left, left_name), _written(right, right_name)), shape)
    return ties.sizes(seed)


def _reads(program: Program, tensor: str) -> list[tuple[IndexExpr, ...]]:
    accesses = [n.attr for n in program.nodes if isinstance(n.attr, Access)]
    return [a.index for a in accesses if a.tensor == tensor]


def _written(program: Program, tensor: str) -> list[tuple[IndexExpr, ...]]:
    return [o.index for o in program.outputs if o.tensor.name == tensor]


class _Ties:
    """Classes of dimensions that must have equal sizes, and those that must keep theirs."""

    def __init__(self, left: Program, right: Program) -> None:
        self._programs = (left, right)
        self._parent: dict[_Key, _Key] = {}
        self._kept: dict[_Key, None] = {}
        self._tied: dict[_Key, None] = {}
        for side, program in enumerate(self._programs):
            for d in program.dims:
                self._parent[side, d.name] = (side, d.name)
                if d.size == 1:
                    self._kept[side, d.name] = None
            self._keep(side, fixed_dims(program))

    def tensor(
        self, accesses: tuple[list[tuple[IndexExpr, ...]], ...], shape: tuple[int, ...]
    ) -> None:
        """Tie the dimensions that index each axis of a tensor that both programs have."""
        for axis, extent in enumerate(shape):
            uses = [(side, index[axis]) for side, found in enumerate(accesses) for index in found]
            self._axis(uses, extent)

    def sizes(self, seed: int) -> JointSizes:
        """One size for each class; what nothing ties keeps its size too."""
        roots = {key: self._find(key) for key in self._parent}
        untied = [key for key in roots if key not in self._tied]
        kept = dict.fromkeys(roots[key] for key in (*self._kept, *untied))
        free = [root for root in dict.fromkeys(roots.values()) if root not in kept]
        taken = [self._size(root) for root in kept]
        for program in self._programs:
            taken += [abs(int(n.attr)) for n in program.nodes if _is_whole(n.attr)]
        candidates = (e for e in chain(_EXTENTS, count(13)) if e not in taken)
        drawn = [next(candidates) for _ in free]
        order = np.random.default_rng(seed).permutation(len(drawn))
        chosen = {root: drawn[n] for root, n in zip(free, order, strict=True)}
        sizes = [
            {d.name: chosen.get(roots[side, d.name]) or d.size for d in program.dims}
            for side, program in enumerate(self._programs)
        ]
        return JointSizes(*sizes)

    def _axis(self, uses: Iterable[tuple[int, IndexExpr]], extent: int) -> None:
        forms = [
            (side, radix_dims(expr, extent, self._programs[side].sizes)) for side, expr in uses
        ]
        sizes = [[self._programs[side].sizes[d] for d in form or ()] for side, form in forms]
        if any(form is None for _, form in forms) or any(s != sizes[0] for s in sizes):
            for side, expr in uses:
                self._keep(side, expr.dims())
            return
        for side, form in forms:
            for d, other in zip(form or (), forms[0][1] or (), strict=True):
                self._tie((side, d), (forms[0][0], other))

    def _keep(self, side: int, dims: Iterable[str]) -> None:
        self._kept.update(dict.fromkeys((side, d) for d in dims))

    def _tie(self, one: _Key, other: _Key) -> None:
        self._tied.update(dict.fromkeys((one, other)))
        self._parent[self._find(one)] = self._find(other)

    def _find(self, key: _Key) -> _Key:
        while self._parent[key] != key:
            key = self._parent[key]
        return key

    def _size(self, key: _Key) -> int:
        return self._programs[key[0]].sizes[key[1]]


def _is_whole(attr: object) -> TypeGuard[float]:
    return isinstance(attr, float) and attr.is_integer()
