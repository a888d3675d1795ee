"""Variances of matmuls' results: statistics of the rows of each tile, stored beside the tile.

A batch norm after a matmul waits for all rows of a column, which no block holds. But a block has
some rows of some columns in registers when its sums are done: it stores them, and the mean and the
squared distances of each column's rows, which take a hundredth of the bytes. What follows reads the
results once, and combines these parts as in ``parallel_variance.py``, unless there are many: then
a kernel between does.

Where all that results are computed from is of one half type, PyTorch rounds them to it. So they are
stored in it, in half of the bytes, and the statistics are of what was rounded, as PyTorch's are:
what is normalised by them has mean 0 and variance 1, however coarse the rounding is. In float32
they are stored, too, as the user's function may not round there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, product
from math import prod
from operator import mul

from mirage_py.search.rewrites.parallel_variance import (
    Cut,
    RowValues,
    along,
    as_written,
    combined_variances,
    combining,
    cut_along,
    endings,
    totals_of,
    variances_of,
)
from mirage_py.search.rewrites.pieces import (
    Timed,
    half_type,
    in_sequence,
    piece,
    split_block,
    stored_tensors,
)
from mirage_py.search.space.layouts_in_memory import axes_as_read
from mirage_py.search.tilings.kinds import ONE_KERNEL, kind_of
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.dtypes import F32, DType
from mirage_py.ugraph.ir.node import REDUCING, Access
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.ugraph.rewrite.rebuild_block import NewNodes, rebuild_block
from mirage_py.ugraph.rewrite.split_dim import split_dim

Search = Callable[[Program], Sequence[UGraph]]

# Rows of a part, at most: those of a tile, or of a tall one where there would be more parts than
# this. Other numbers of parts are tried with the tiles.
_ROWS, _TALL, _MANY_PARTS = 128, 256, 128
# Rows along one dimension that are a part by themselves, as pixels of a line are: a tile may have
# any number of lines then, as without statistics.
_LINE = 8
# Where sizes have few divisors a part has less rows, but not so many times less.
_FEWER = 2
# Of more rows than this no block holds a column: kernels are not searched that would.
_LONG = 1 << 13
# So many parts are combined by each block that reads their rows.
_FEW_PARTS = 16


def with_product_variance(
    program: Program,
    search: Search,
    best: Callable[[Sequence[UGraph]], Timed],
    may: Callable[[UGraph], bool],
) -> list[UGraph]:
    """Families that store results of matmuls with the statistics of their tiles; none where the
    program has no variances of such. ``search`` finds the families of a program that are one
    kernel, cheapest first; ``best`` predicts and keeps the best few. Of kernels in loops that
    combine parts those are taken that ``may`` be.
    """
    values = varying_products(program)
    cut = cut_into_tiles(program, values) if values else None
    if cut is None:
        return []
    kernels = [_kernels_for(program, v, search, best) for v in values]
    types = dict.fromkeys(half_type(program, v) for v in values)
    found: list[UGraph | None] = []
    for half in dict.fromkeys((*types, None)) if len(types) == 1 else (None,):
        families = _Families(program, cut, half)
        endings = [*families.at_once(), *families.with_one_between(search, best, may)]
        ways = product(product(*kernels), endings)
        found += [families.made(blocks, ending) for blocks, ending in ways]
    return list({u.digest: u for u in found if u is not None}.values())


def has_long_products(program: Program) -> bool:
    """Whether it has variances of matmuls' results of which no block has all rows of a column, and
    these can be cut into tiles.
    """
    values = varying_products(program)
    rows = {d for n in variances_of(program.nodes) for d in program.nodes[n].reduced}
    is_long = bool(values) and prod(program.sizes[d] for d in rows) > _LONG
    return is_long and cut_into_tiles(program, values) is not None


def varying_products(program: Program) -> tuple[int, ...]:
    """The values that are computed from matmuls and of which the program has variances over some
    rows; none where these are reduced in another way, too.
    """
    nodes = program.nodes
    squares = variances_of(nodes)
    known = {*squares, *totals_of(nodes, squares)}
    rows = {d for n in squares for d in nodes[n].reduced}
    for number, node in enumerate(nodes):
        is_known = number in known and {*node.reduced} == rows
        if node.op in REDUCING and not rows.isdisjoint(node.reduced) and not is_known:
            return ()
    values = tuple(dict.fromkeys(v.elements for v in squares.values()))
    for value in values:
        below = {nodes[n].op for n in cone(nodes, [value])}
        if "matmul" not in below or below & {"sum", "max"} or not rows < {*nodes[value].dims}:
            return ()
    return values


def cut_into_tiles(program: Program, values: Sequence[int]) -> Cut | None:
    """How rows are cut into parts that a tile holds; None where sizes have no divisors for it, or
    the rows are a part themselves.
    """
    cut = _cut(program, values[0], _ROWS)
    if cut is None or not cut.outer:
        return None
    outer = [d for d in cut.outer if d in program.sizes]
    is_many = prod(program.sizes[d] for d in outer) * cut.splits > _MANY_PARTS
    return (_cut(program, values[0], _TALL) if is_many else None) or cut


def _cut(program: Program, value: int, most: int) -> Cut | None:
    """The cut into parts of ``most`` rows, or a few less; or of the rows along one dimension, such
    as a line of an image, if these are no more.
    """
    nodes, rows = program.nodes, along(program)
    dims = [d for d in reversed(nodes[value].dims) if d in rows]
    line = next((n for n in accumulate((program.sizes[d] for d in dims), mul) if n >= _LINE), most)
    cut, left = cut_along(program, dims, min(line, most))
    return cut if left < _FEWER else None


def _kernels_for(
    program: Program, value: int, search: Search, best: Callable[[Sequence[UGraph]], Timed]
) -> list[BlockGraph]:
    """The kernels that compute a value fastest with a loop and without one, of those that store it
    at their end: without one, operands of so many rows may not fit.
    """
    families = search(piece(program, stored_tensors(program, [value]), value))
    timed = best([u for u in families if kind_of(u) == ONE_KERNEL])
    found: dict[bool, BlockGraph] = {}
    for block in (k for _, u in timed for k in u.kernels if isinstance(k, BlockGraph)):
        if block.sections[-1].loop is None:
            found.setdefault(block.has_loops, block)
    return list(found.values())


# Kernels after those for the results of matmuls, and the values that they read.
_Ending = tuple[Sequence[int], Sequence[UGraph]]


class _Families:
    """Those of one cut, with results stored in a ``half`` type or in float32."""

    def __init__(self, program: Program, cut: Cut, half: DType | None) -> None:
        self._cut = cut
        self._whole = split_dim(program, cut.dim, cut.splits) if cut.dim else program
        self._combined = combined_variances(self._whole, cut.outer, half)
        self._split = split = self._combined.program
        self._values = self._combined.elements
        self._along = along(self._whole)
        self._rows = RowValues(split, self._along)
        self._given = (*self._values, *self._combined.parts)
        self._stored = stored_tensors(split, (*self._given, *self._rows.read), F32)
        for value in self._values:
            self._stored[value] = replace(self._stored[value], dtype=half or F32)

    def at_once(self) -> Iterator[_Ending]:
        """One kernel, whose blocks combine the parts of their columns."""
        stored = {v: self._stored[v] for v in self._given}
        last = piece(self._split, stored, outputs=self._split.outputs)
        parts = prod(self._split.sizes[d] for d in self._cut.outer)
        if parts <= _FEW_PARTS and self._is_elementwise(last):
            yield self._given, (as_written(last),)

    def with_one_between(
        self,
        search: Search,
        best: Callable[[Sequence[UGraph]], Timed],
        may: Callable[[UGraph], bool],
    ) -> Iterator[_Ending]:
        """A kernel that combines parts, and the rest."""
        split, stored, rows = self._split, self._stored, self._rows
        if not rows.others or not rows.read:
            return
        between = piece(split, stored, *rows.read, outputs=rows.outputs)
        last = piece(split, stored, outputs=rows.others)
        middles = combining(between, self._combined, self._cut.outer, search, may)
        for middle, rest in product(middles, endings(last, search, best)):
            yield (*self._given, *rows.read), (middle, rest)

    def _is_elementwise(self, program: Program) -> bool:
        """Whether it reduces nothing but parts."""
        reduced = {d for n in program.nodes if n.op in REDUCING for d in n.reduced}
        return reduced <= {*self._cut.outer}

    def made(self, blocks: Sequence[BlockGraph], ending: _Ending) -> UGraph | None:
        """The kernels in sequence; None where the ones at the end do not take them as they are."""
        values, rest = ending
        first = (self._with_parts(b, v) for b, v in zip(blocks, self._values, strict=True))
        return in_sequence(self._whole, (*first, *rest), [self._stored[v] for v in values])

    def _with_parts(self, block: BlockGraph, value: int) -> UGraph:
        """The kernel for a value with the statistics of what its blocks have of it."""
        nodes = self._split.nodes
        above = {p: self._above_values(p) for p in self._combined.parts}
        parts = [p for p, between in above.items() if any(value in nodes[n].args for n in between)]
        behind = sorted({n for p in parts for n in above[p]})
        if self._cut.dim:
            block = split_block(block, self._whole, self._cut.dim)

        def rule(new: NewNodes, number: int) -> int | None:
            node = block.nodes[number]
            if node.op != "store":
                return new.copy(number)
            place = {value: new.place[node.args[0]]}
            if nodes[value].op == "cast":
                place[value] = new.add("cast", [place[value]], nodes[value].attr, node.dims)
            for n in behind:
                args = [place[a] for a in nodes[n].args]
                place[n] = new.add(nodes[n].op, args, nodes[n].attr, nodes[n].dims)
            for stored in (value, *parts):
                self._store(new, stored, place[stored])
            return None

        held = [d for d in self._along if d not in self._cut.outer]
        grid = tuple(a for a in block.grid if a.dim not in held)
        made = replace(rebuild_block(block, rule), grid=grid)
        return UGraph(piece(self._split, self._stored, value, *parts), (made,))

    def _above_values(self, part: int) -> tuple[int, ...]:
        """What a part is made of, down to the values that are stored: a number or a bias below one
        of these, too, is made again.
        """
        nodes = self._split.nodes
        found: dict[int, None] = {}
        todo = [part]
        while todo:
            n = todo.pop()
            if n not in found and n not in self._values:
                found[n] = None
                todo += nodes[n].args
        return tuple(found)

    def _store(self, new: NewNodes, value: int, place: int) -> None:
        index = tuple(map(ix.dim, axes_as_read(self._split, self._split.nodes[value].dims)))
        dims = self._split.nodes[value].dims
        new.add("store", [place], Access(self._stored[value].name, index), dims)
