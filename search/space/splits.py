"""Numbers of splits worth trying for a split dimension, and families at those numbers.

The search leaves the number of splits of a program at a nominal value
(mirage_py.ugraph.rewrite.split_dim). It is the extent of a grid axis, so it changes no equation and
is chosen with the tiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import lcm, prod

from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import REDUCING, Access, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.rewrite.split_dim import in_runs, outer_dim, splits_of, with_splits

MAX_SPLITS = 1024
# More than so many only where each is long: partial results are read again.
_USUAL_SPLITS, _LONG_INNER = 64, 1 << 17
# With fewer points in a split, a matmul would have less than one tile to sum over.
_MIN_INNER = 16
_BY_ROWS = ("floordiv", "mod")


def split_dims(program: Program) -> tuple[str, ...]:
    """The dimensions of a program that are split, into any number of splits.

    Names alone say nothing (a user may call a dimension ``x_part``): every index has to depend on
    the position ``part * size + inner`` only, and every reduction has to take both or neither.
    """
    return tuple(
        d for d in program.dim_names if outer_dim(d) in program.sizes and _is_split(program, d)
    )


def split_counts(program: Program, dim: str, most: int = MAX_SPLITS) -> tuple[int, ...]:
    """The numbers of splits worth trying, smallest first: powers of two, shares of the rows that
    the dimension consists of, and the one it has; all of them ``most`` or fewer.
    """
    nominal = splits_of(program, dim)
    size = nominal * program.sizes[dim]
    halves = _Halves(program, dim)
    row = halves.rows
    counts = {1 << k for k in range(1, MAX_SPLITS.bit_length())}
    for rows in (row, *halves.edges):
        if rows > 1:
            counts |= {size // rows >> k for k in range(size.bit_length())}
            counts |= {size // rows << k for k in range(MAX_SPLITS.bit_length())}
    able = range(2, MAX_SPLITS + 1)
    fitting = {
        n
        for n in counts
        if n in able
        and size % (n * row) == 0
        and size // n >= _least_inner(n)
        and halves.go_together(size // n)
    }
    return tuple(count for count in sorted({*fitting, nominal}) if count <= most)


def split_choices(program: Program, most: int = MAX_SPLITS) -> tuple[Mapping[str, int], ...]:
    """Numbers of splits for every split dimension: one varies at a time, the rest are nominal; none
    is more than ``most``.

    One empty choice where nothing is split, none where ``most`` are fewer than any number.
    """
    dims = split_dims(program)
    nominal = {d: splits_of(program, d) for d in dims}
    choices = [nominal] if all(n <= most for n in nominal.values()) else []
    for d in dims:
        choices += [{**nominal, d: n} for n in split_counts(program, d, most) if n != nominal[d]]
    return tuple(choices)


def at_splits(ugraph: UGraph, splits: Mapping[str, int]) -> UGraph:
    """The µGraph with these numbers of splits; itself where it has them already.

    Raises InputError where a number is no proper divisor of its dimension's size.
    """
    for dim, count in splits.items():
        if splits_of(ugraph.program, dim) != count:
            ugraph = with_splits(ugraph, dim, count)
    return ugraph


def _is_split(program: Program, dim: str) -> bool:
    outer = outer_dim(dim)
    for node in program.nodes:
        if node.op in REDUCING and (dim in node.reduced) != (outer in node.reduced):
            return False
        if (
            node.op == "size"
            and node.attr in (dim, outer)
            and not _is_full_size(program, node, dim)
        ):
            return False
    return _Halves(program, dim).are_together


def _exprs(node: Node) -> list[IndexExpr]:
    if isinstance(node.attr, IndexExpr):
        return [node.attr]
    return _compared(node.attr) if isinstance(node.attr, Predicate) else []


def _compared(predicate: Predicate) -> list[IndexExpr]:
    return [*predicate.exprs, *(e for p in predicate.args for e in _compared(p))]


def _is_full_size(program: Program, size: Node, dim: str) -> bool:
    """Whether an extent is only used multiplied by that of the other half."""
    other = outer_dim(dim) if size.attr == dim else dim
    number = program.nodes.index(size)
    users = [n for n in program.nodes if number in n.args]

    def is_other(position: int) -> bool:
        node = program.nodes[position]
        return node.op == "size" and node.attr == other

    return all(n.op == "mul" and any(map(is_other, n.args)) for n in users)


def _least_inner(splits: int) -> int:
    """The points that each of so many splits has at least."""
    return _MIN_INNER if splits <= _USUAL_SPLITS else _LONG_INNER


class _Halves:
    """How index expressions depend on the two halves of a split dimension, which are the position
    ``outer * size + inner``. ``rows`` is what every split has to be a multiple of: rows of tensors
    in which the dimension is several axes. Where it has a digit in each, ``edges`` are how many
    points the axes behind them have: a split is a multiple of these, or a share.
    """

    def __init__(self, program: Program, dim: str) -> None:
        self._dim, self._outer = dim, outer_dim(dim)
        self._size = program.sizes[dim]
        self.rows = 1
        self.edges: set[int] = set()
        accesses = [Access(o.tensor.name, o.index) for o in program.outputs]
        accesses += [node.attr for node in program.nodes if isinstance(node.attr, Access)]
        exprs = [e for access in accesses for e in self._positions(program, access)]
        exprs += [e for node in program.nodes for e in _exprs(node)]
        self.are_together = all(self._missing(e) == 0 for e in exprs)

    def go_together(self, inner: int) -> bool:
        """Whether splits of so many points end where rows do, or are shares of one."""
        return all(inner % edge == 0 or edge % inner == 0 for edge in self.edges)

    def _positions(self, program: Program, access: Access) -> Iterator[IndexExpr]:
        if all(self._outer not in e.dims() for e in access.index):
            yield from access.index
            return
        shape = program.tensors[access.tensor].shape
        for expr, extents in in_runs(access, shape, self._dim, program.sizes):
            if self._outer in expr.dims():
                self.edges |= {prod(extents[n:]) for n in range(1, len(extents))}
            yield expr

    def _missing(self, expr: IndexExpr) -> Fraction | None:
        """How much an expression has to grow with each split to depend on the position only, as far
        as one can see; None where no number does.

        The quotient of an expression that misses a multiple of the divisor misses so much less, and
        its remainder nothing: of rows of 256 points the place in one is ``inner % 256``.
        """
        if expr.op == "dim":
            return Fraction({self._dim: self._size, self._outer: -1}.get(expr.name, 0))
        parts = [self._missing(a) for a in expr.args]
        known = [p for p in parts if p is not None]
        if len(known) < len(parts):
            return None
        if expr.op == "mul":
            return known[0] * expr.value
        if expr.op == "add":
            return sum(known, Fraction(0))
        if expr.op in _BY_ROWS:
            if (known[0] / expr.value).denominator > 1:
                return None
            self.rows = lcm(self.rows, (known[0] / (self._size * expr.value)).denominator)
            return known[0] / expr.value if expr.op == "floordiv" else Fraction(0)
        return None if any(known) else Fraction(0)
