"""Vectorised loads and stores: the elements that a thread accesses at once, up to 16 bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from mirage_py.codegen.cuda.windows.linear import Condition
from mirage_py.codegen.cuda.windows.scalars import Element
from mirage_py.codegen.tiling.contiguity import ALIGNMENT_BYTES
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.program import Tensor


@dataclass(frozen=True, slots=True)
class Vector:
    """``width`` elements from ``first`` on, behind what ``terms`` add to the address; ``members``
    are positions among the elements that were given, None for what nobody asked for.
    """

    tensor: str
    terms: tuple[tuple[IndexExpr, int], ...]
    first: int
    width: int
    guard: Condition
    members: tuple[int | None, ...]


def vectors_of(
    elements: Sequence[Element], tensors: Mapping[str, Tensor], *, whole: bool
) -> list[Vector]:
    """The elements in vectors, in the order of their addresses, that of the tensors kept. A vector
    is ``whole`` if nothing else may be in it.
    """
    groups: dict[tuple[str, tuple[tuple[IndexExpr, int], ...]], list[dict[int, int]]] = {}
    for number, element in enumerate(elements):
        place = element.place
        sides = groups.setdefault((element.tensor, place.terms), [{}])
        # One address under several guards: the end of a row and the begin of the next, beyond it.
        side = next((s for s in sides if place.constant not in s), None)
        if side is None:
            side = {}
            sides.append(side)
        side[place.constant] = number
    found: list[Vector] = []
    for (name, terms), places in ((key, s) for key, sides in groups.items() for s in sides):
        tensor = tensors[name]
        most = ALIGNMENT_BYTES // tensor.dtype.bytes
        width = gcd(most, *(f for _, f in terms))
        todo = sorted(places)
        while todo:
            vector = _vector(todo[0], width, places, elements, tensor, whole=whole)
            found.append(Vector(name, terms, *vector))
            first, size = vector[0], vector[1]
            todo = [p for p in todo if p >= first + size]
    return found


def _vector(
    place: int,
    width: int,
    places: Mapping[int, int],
    elements: Sequence[Element],
    tensor: Tensor,
    *,
    whole: bool,
) -> tuple[int, int, Condition, tuple[int | None, ...]]:
    """The widest vector that begins at or before a place and has all that is wanted of it."""
    guard = elements[places[place]].guard
    while True:
        first = place // width * width
        members = tuple(places.get(p) for p in range(first, first + width))
        wanted = [n for n in members if n is not None]
        if width == 1:
            return first, 1, guard, members
        same = all(elements[n].guard == guard for n in wanted)
        # What is read beside it has to be memory of the tensor.
        inside = members[-1] is not None or (tensor.last_offset + 1) % width == 0
        fills = len(wanted) == width if whole else len(wanted) * 2 > width or _spans(members)
        if same and inside and fills:
            return first, width, guard, members
        width //= 2


def _spans(members: Sequence[int | None]) -> bool:
    """Whether both halves hold wanted elements, so that half the vector would not do."""
    half = len(members) // 2
    return any(m is not None for m in members[:half]) and any(m is not None for m in members[half:])
