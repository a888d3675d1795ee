"""Cells: the regions into which conditions divide a program's iteration space, at the real sizes.

Conditions are the comparisons of masks. In one cell each of them holds everywhere or nowhere. Where
an output's own dimensions are divided, the first and the last value of the quotient and of the
remainder are conditions too, so that ends of quotients have cells; reduced dimensions are evaluated
completely and need none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import REDUCING, Access, Attr, Node
from mirage_py.ugraph.ir.predicates import negation
from mirage_py.verify.pieces.integer_sets import (
    IntegerSets,
    OutOfOperationsError,
    Points,
    common,
    without,
)
from mirage_py.verify.sizes.conditions import comparisons

_MAX_CELLS = 200
# Marks a dimension where it is summed over, to distinguish it from an output dimension of that
# name.
_BOUND = "'"


@dataclass(frozen=True, slots=True)
class Side:
    """Nodes that compute an output, and ``index``, where each point of it is written."""

    nodes: tuple[Node, ...]
    sizes: Mapping[str, int]
    index: tuple[IndexExpr, ...]


@dataclass(frozen=True, slots=True)
class Region:
    """Cells over the dimensions ``names``; together they are the whole box."""

    names: tuple[str, ...]
    cells: tuple[Points, ...]


class Cut:
    """A side with its dimensions told apart: those of the output, and those that are bound.

    A dimension of the output that is summed over as well is two; what has it is looked at with
    either. Regions have the conditions that belong ``together``, or one each.
    """

    def __init__(self, side: Side, sets: IntegerSets, *, together: bool) -> None:
        self.index = side.index
        free = dict.fromkeys(d for e in side.index for d in e.dims())
        reduced = [n.reduced for n in side.nodes if n.op in REDUCING]
        self._twice = [d for d in free if any(d in dims for dims in reduced)]
        self.sizes = {**side.sizes, **{d + _BOUND: side.sizes[d] for d in self._twice}}
        self._free = free
        self._sets = sets
        self.loads = tuple(
            version
            for access in dict.fromkeys(n.access for n in side.nodes if n.op == "load")
            if not access.is_look_up
            for version in self._versions(access)
        )
        attrs = tuple(dict.fromkeys(n.attr for n in side.nodes))
        masks = [c for a in attrs if isinstance(a, Predicate) for c in comparisons(a) if c.dims()]
        quotients = [end for e in _index_exprs(attrs) for end in _ends_of_quotients(e, side.sizes)]
        conditions = {c.substitute(r): None for c in masks for r in self._renamings(c.dims())} | {
            c: None for c in quotients if all(d in free for d in c.dims())
        }
        groups = self._grouped(list(conditions)) if together else [[c] for c in conditions]
        self.regions = tuple(self._region(group) for group in groups)

    def touching(self, access: Access) -> list[Region]:
        """The regions that share a dimension with an access, or one of a single cell."""
        dims = access.dims()
        found = [r for r in self.regions if any(d in r.names for d in dims)]
        return found or [Region(dims, (self.box(dims),))]

    def box(self, dims: Iterable[str]) -> Points:
        """All points of some dimensions."""
        return self._sets.box({d: self.sizes[d] for d in dims})

    def _versions(self, access: Access) -> Iterator[Access]:
        for renaming in self._renamings(access.dims()):
            yield Access(access.tensor, tuple(e.substitute(renaming) for e in access.index))

    def _renamings(self, dims: Sequence[str]) -> Iterator[dict[str, IndexExpr]]:
        both = [d for d in dims if d in self._twice]
        for count in range(len(both) + 1):
            for chosen in combinations(both, count):
                yield {d: ix.dim(d + _BOUND) for d in chosen}

    def _grouped(self, conditions: Sequence[Predicate]) -> list[list[Predicate]]:
        """Those together that share a bound dimension; of those without, that share any."""
        groups: list[tuple[dict[str, None], list[Predicate]]] = []
        for condition in conditions:
            bound = [d for d in condition.dims() if d not in self._free]
            keys = dict.fromkeys(bound or condition.dims())
            members = [condition]
            apart = []
            for other_keys, others in groups:
                if any(k in keys for k in other_keys):
                    keys, members = other_keys | keys, others + members
                else:
                    apart.append((other_keys, others))
            groups = [*apart, (keys, members)]
        return [members for _, members in groups]

    def _region(self, conditions: Sequence[Predicate]) -> Region:
        names = tuple(dict.fromkeys(d for c in conditions for d in c.dims()))
        cells = [self.box(names)]
        for condition in conditions:
            inside, outside = (self._holds(c, names) for c in (condition, negation(condition)))
            # No subtraction: of sets with quotients that is costly.
            halves = [common(cell, half) for cell in cells for half in (inside, outside)]
            cells = [half for half in halves if half is not None]
            if len(cells) > _MAX_CELLS:
                raise OutOfOperationsError(f"conditions make more than {_MAX_CELLS} cells")
        return Region(names, tuple(cells))

    def _holds(self, condition: Predicate, names: Sequence[str]) -> Points:
        left, right = condition.exprs
        return self._sets.compared(condition.op, left, right, names)


def split(cells: Iterable[Points], by: Points) -> list[Points]:
    """Each cell as what lies in ``by`` and what does not."""
    halves = [half for cell in cells for half in (common(cell, by), without(cell, by))]
    return [half for half in halves if half is not None]


def _index_exprs(attrs: Iterable[Attr]) -> Iterator[IndexExpr]:
    for attr in attrs:
        if isinstance(attr, Access):
            yield from (e for e in attr.index if not e.tensors())
        elif isinstance(attr, IndexExpr):
            yield attr
        elif isinstance(attr, Predicate):
            yield from (e for c in comparisons(attr) for e in c.exprs)


def _ends_of_quotients(expr: IndexExpr, sizes: Mapping[str, int]) -> Iterator[Predicate]:
    for part in expr.args:
        yield from _ends_of_quotients(part, sizes)
    if expr.op not in ("floordiv", "mod"):
        return
    (divided,), divisor = expr.args, expr.value
    low, high = (bound // divisor for bound in divided.bounds(sizes))
    if low < high:
        yield ix.compare("lt", divided, (low + 1) * divisor)
        yield ix.compare("ge", divided, high * divisor)
    yield ix.compare("eq", ix.mod(divided, divisor), 0)
    yield ix.compare("eq", ix.mod(divided, divisor), divisor - 1)
