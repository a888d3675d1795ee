"""Joint small sizes for two programs, under which their inputs still have equal shapes.

The programs name their dimensions as they like. What ties them together are the tensors: an axis
that both read by one dimension ties the two dimensions; an axis that both read as the same mixed
radix (h * 64 + d) ties them in pairs, and so does one that all read by the same windows
(2 * i + k); one that a program reads by one dimension and the other by several makes that one their
product, unless conditions depend on them. Positions that are data fit any extent, and constant
ones stay where they are. Any other axis keeps its size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from math import prod
from typing import TypeGuard

import numpy as np

from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.node import Access
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.sizes.affine import affine, radix_dims
from mirage_py.verify.sizes.shrink import fixed_dims, is_known_position, predicates_of

# Side (0 or 1) and dimension.
_Key = tuple[int, str]

# Of distinct small sizes as many as needed; 6 is left out as the multiple of two others.
_EXTENTS = (3, 4, 5, 7, 8, 9, 10, 11)
# Points of a window that keep their number.
_WINDOW = 4


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
        # Dimensions that are products of others.
        self._products: list[tuple[_Key, tuple[_Key, ...]]] = []
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
        products = self._free_products(kept)
        free = [r for r in dict.fromkeys(roots.values()) if r not in kept and r not in products]
        taken = [self._size(root) for root in kept]
        for program in self._programs:
            taken += [abs(int(n.attr)) for n in program.nodes if _is_whole(n.attr)]
        candidates = (e for e in chain(_EXTENTS, count(13)) if e not in taken)
        drawn = [next(candidates) for _ in free]
        order = np.random.default_rng(seed).permutation(len(drawn))
        chosen = {root: drawn[n] for root, n in zip(free, order, strict=True)}
        for root, parts in products.items():
            chosen[root] = prod(chosen.get(part) or self._size(part) for part in parts)
        sizes = [
            {d.name: chosen.get(roots[side, d.name]) or d.size for d in program.dims}
            for side, program in enumerate(self._programs)
        ]
        return JointSizes(*sizes)

    def _free_products(self, kept: dict[_Key, None]) -> dict[_Key, tuple[_Key, ...]]:
        """The parts of each class that is a product. One that keeps its size, is a part itself, has
        conditions or other parts elsewhere joins those that are ``kept``, with its parts.
        """
        found = [(self._find(d), tuple(map(self._find, parts))) for d, parts in self._products]
        parts_of = dict(found)
        asked = {
            self._find((n, d)) for n, p in enumerate(self._programs) for d in _in_conditions(p)
        }
        inner = {part for _, parts in found for part in parts}
        for root, parts in [*found, *found]:  # again, for those that share what is kept later
            keys = (root, *parts)
            if root in kept or root in inner or parts_of[root] != parts or asked & {*keys}:
                kept.update(dict.fromkeys(keys))
        return {root: parts for root, parts in parts_of.items() if root not in kept}

    def _axis(self, uses: Sequence[tuple[int, IndexExpr]], extent: int) -> None:
        uses = [
            (side, expr)
            for side, expr in uses
            if not (is_known_position(expr) or expr.op == "const")
        ]
        forms = [
            (side, radix_dims(expr, extent, self._programs[side].sizes)) for side, expr in uses
        ]
        keys = [[(side, d) for d in form] for side, form in forms if form is not None]
        finest = max(keys, key=len, default=[])
        groups = [self._groups(form, finest) for form in keys]
        if len(keys) < len(forms) or any(g is None for g in groups):
            if self._windows(uses):
                return
            for side, expr in uses:
                self._keep(side, expr.dims())
            return
        for form, found in zip(keys, groups, strict=True):
            for key, parts in zip(form, found or (), strict=True):
                if len(parts) == 1:
                    self._tie(key, parts[0])
                else:
                    self._tied[key] = None
                    self._products.append((key, parts))

    def _windows(self, uses: Sequence[tuple[int, IndexExpr]]) -> bool:
        """Tie the dimensions of an axis that is read as one sum of multiples everywhere. Few
        points, as of a window, stay as they are.
        """
        forms = [(side, affine(expr)) for side, expr in uses]
        terms: list[list[tuple[_Key, int]]] = []
        shapes: dict[object, None] = {}
        for side, form in forms:
            if form is None or len(form.terms) < 2:
                return False
            keys = [((side, d), factor) for d, factor in form.terms]
            terms.append(sorted(keys, key=lambda t: (t[1], self._size(t[0]))))
            shapes[form.constant, tuple((f, self._size(k)) for k, f in terms[-1])] = None
        if len(shapes) != 1:
            return False
        for several in zip(*terms, strict=True):
            for key, _ in several:
                if self._size(key) <= _WINDOW:
                    self._kept[key] = None
                else:
                    self._tie(key, several[0][0])
        return True

    def _groups(
        self, form: Sequence[_Key], finest: Sequence[_Key]
    ) -> list[tuple[_Key, ...]] | None:
        """The dimensions of the finest form that each one of ``form`` is the product of."""
        left = list(finest)
        found = []
        for key in form:
            parts = [left.pop(0)] if left else []
            while left and prod(map(self._size, parts)) < self._size(key):
                parts.append(left.pop(0))
            if prod(map(self._size, parts)) != self._size(key):
                return None
            found.append(tuple(parts))
        return None if left else found

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


def _in_conditions(program: Program) -> list[str]:
    """Dimensions that masks and numbers of positions depend on."""
    positions = [d for n in program.nodes if isinstance(n.attr, IndexExpr) for d in n.attr.dims()]
    return [*positions, *(d for p in predicates_of(program) for d in p.dims())]


def _is_whole(attr: object) -> TypeGuard[float]:
    return isinstance(attr, float) and attr.is_integer()
