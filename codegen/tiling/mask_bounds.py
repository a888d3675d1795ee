"""Bounds on the position of a loop from which on, or up to which, a mask is false or true.

They follow from the mask's inequalities over positions. A mask that is not affine gives none, which
is safe for tile-skipping masks; a mask that has to be true all over a tile must be affine as a
whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.ugraph.ir.index import IndexExpr, Predicate

# An affine form: the scales of dimensions, and an offset.
Form = tuple[dict[str, int], int]

_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


@dataclass(frozen=True, slots=True)
class Bound:
    """An affine bound on the loop's position: (offset + sum of scale * position) / divisor, rounded
    down for an upper bound (exclusive) and up for a lower one.

    ``terms`` are (dimension, scale, end); the position is the ``end`` (0 first, 1 last) of what the
    block has of the dimension.
    """

    terms: tuple[tuple[str, int, int], ...]
    offset: int
    divisor: int

    def dims(self) -> tuple[str, ...]:
        """Dimensions whose place in the grid it depends on."""
        return tuple(d for d, _, _ in self.terms)

    def value(self, ends: Mapping[str, tuple[int, int]]) -> int:
        """The bound for a block, whose first and last positions are ``ends``."""
        total = self.offset + sum(scale * ends[d][end] for d, scale, end in self.terms)
        return total // self.divisor


def at_most_zero(predicate: Predicate) -> Iterator[Form]:
    """Affine forms, as scales of dimensions and an offset, that are all at most 0 where it holds.

    What is not affine gives none, which is always right.
    """
    if predicate.op == "and":
        for part in predicate.args:
            yield from at_most_zero(part)
        return
    op, exprs = predicate.op, predicate.exprs
    if op == "not" and predicate.args[0].op in _OPPOSITE:
        op, exprs = _OPPOSITE[predicate.args[0].op], predicate.args[0].exprs
    if len(exprs) != 2 or op not in (*_OPPOSITE, "eq"):
        return
    left, right = _affine(exprs[0]), _affine(exprs[1])
    if left is None or right is None:
        return
    difference = combined(left, right, -1)
    strict = int(op in ("lt", "gt"))
    if op in ("lt", "le", "eq"):
        yield difference[0], difference[1] + strict
    if op in ("gt", "ge", "eq"):
        scales, offset = combined(({}, 0), difference, -1)
        yield scales, offset + strict


def conjunction(predicate: Predicate) -> list[Form] | None:
    """Affine forms that are all at most 0 where it holds and only there; None if it is no such
    condition.
    """
    if predicate.op == "and":
        parts = [conjunction(part) for part in predicate.args]
        return None if None in parts else [form for part in parts for form in part or ()]
    forms = list(at_most_zero(predicate))
    is_not = predicate.op == "not" and predicate.args[0].op in _OPPOSITE
    return forms if forms and (is_not or predicate.op in _OPPOSITE) else None


def held(tiling: Tiling, loop: str, scales: Mapping[str, int], offset: int) -> Bound | None:
    """scale * position + rest <= 0 for the loop's position, the rest as large as a block has it;
    None where that is no upper bound.
    """
    scale = scales.get(loop, 0)
    if scale <= 0:
        return None
    terms: list[tuple[str, int, int]] = []
    for dim, factor in scales.items():
        if dim == loop:
            continue
        if dim in tiling.run_time:
            return None
        if dim in tiling.block.grid_tiles:
            terms.append((dim, -factor, int(factor > 0)))
        elif factor > 0:
            offset += factor * (tiling.program.sizes[dim] - 1)
    return Bound(tuple(terms), scale - offset, scale)


def _affine(expr: IndexExpr) -> Form | None:
    if expr.op == "dim":
        return {expr.name: 1}, 0
    if expr.op == "const":
        return {}, expr.value
    parts = [_affine(a) for a in expr.args]
    if expr.op == "add" and parts[0] is not None and parts[1] is not None:
        return combined(parts[0], parts[1], 1)
    if expr.op == "mul" and parts[0] is not None:
        return combined(({}, 0), parts[0], expr.value)
    return None


def combined(left: Form, right: Form, factor: int) -> Form:
    """left + factor * right."""
    scales = dict(left[0])
    for dim, scale in right[0].items():
        scales[dim] = scales.get(dim, 0) + factor * scale
    return {d: s for d, s in scales.items() if s}, left[1] + factor * right[1]


def solved(tiling: Tiling, loop: str, scales: Mapping[str, int], offset: int) -> Bound | None:
    """scale * position + rest <= 0 for the loop's position, the rest as small as a block has it."""
    scale = scales.get(loop, 0)
    if scale == 0:
        return None
    terms: list[tuple[str, int, int]] = []
    for dim, factor in scales.items():
        if dim == loop:
            continue
        if dim in tiling.block.grid_tiles:
            terms.append((dim, factor, int(factor < 0)))
        elif factor < 0:
            if dim in tiling.run_time:
                return None
            offset += factor * (tiling.program.sizes[dim] - 1)
    if scale > 0:
        # position <= -rest / scale, and one more as the end is exclusive
        negated = tuple((d, -f, end) for d, f, end in terms)
        return Bound(negated, scale - offset, scale)
    # position >= rest / -scale, rounded up
    return Bound(tuple(terms), offset - scale - 1, -scale)
