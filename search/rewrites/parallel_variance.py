"""Variances in one pass: sums and squared distances of parts that a block holds, combined.

A variance needs the mean first, so long rows are read twice for it. But of parts of B elements with
means m_p and sums of squared distances q_p, each from its own mean, the sum of squared distances
from any m is the sum of q_p + B (m_p - m)^2 (Chan, Golub, LeVeque 1983). A block reads a part once,
into registers, and nothing is lost by cancellation, as in the mean of squares less the square of
the mean. What rounding takes from m_p is kept, too: the distances from it have a sum r_p, which is
0 but for that, and q_p + (m_p - m) (2 r_p + B (m_p - m)) is right for any m_p. Three kernels do
that: one over the parts, one that combines them, and what reads the results, which is elementwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import islice, product
from math import inf, prod

from mirage_py.codegen.tiling.tiles import next_power_of_two
from mirage_py.search.extract.lower import kernel_name
from mirage_py.search.rewrites.pieces import Timed, in_sequence, piece, stored_tensors
from mirage_py.search.space.layouts_in_memory import axes_as_read
from mirage_py.targets import Target
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.dims import node_dims
from mirage_py.ugraph.ir.dtypes import F32, DType
from mirage_py.ugraph.ir.node import REDUCING, Access, Node
from mirage_py.ugraph.ir.program import Output, Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, Section, UGraph
from mirage_py.ugraph.rewrite.rebuild import copied
from mirage_py.ugraph.rewrite.split_dim import outer_dim, split_dim

Search = Callable[[Program], Sequence[UGraph]]

# Elements of a part, at most: a block holds them as one tile. And points of one whose tile is over
# rows, too, as fewer elements of one lie side by side in memory than are worth an access.
_ALONG, _ACROSS, _LONG_RUN = (16384, 4096), (256, 64), 64
# Of more elements one block that combines the parts has several tiles. Where rows lie side by side
# in memory, and not the parts of one, a tile has so many rows, one line of float32.
_ONE_TILE, _ROWS_BESIDE = 1 << 14, 16
# Parts are at most so many times smaller, where sizes have few divisors.
_SMALLER = 8
# Shorter rows are one tile.
_LONG = 1 << 15
# Blocks that run on each multiprocessor: with fewer rows some are idle. What they read again is in
# the L2 as long as their rows have no more bytes than this share of it.
_AT_ONCE, _OF_L2 = 2, 0.5


def with_parallel_variance(
    program: Program,
    search: Search,
    best: Callable[[Sequence[UGraph]], Timed],
    may: Callable[[UGraph], bool],
    target: Target,
) -> list[UGraph]:
    """Families that read long rows once for their variances and means; none where the program has
    no such rows, or reduces them in another way, too. ``search`` finds the families of a program
    that are one kernel, cheapest first; those are taken that ``may`` be. ``best`` predicts and
    keeps the best few.
    """
    found: dict[str, UGraph] = {}
    for cut in cuts_into_parts(program, target):
        found |= {u.digest: u for u in _families(program, cut, search, best, may)}
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Variance:
    """A sum of squared distances from a middle, that was made of a sum of the same elements."""

    elements: int
    middle: int


@dataclass(frozen=True, slots=True)
class LongRows:
    """The dimensions that long rows have, and the values that they are of."""

    reduced: frozenset[str]
    elements: tuple[int, ...]


def long_variances(program: Program, target: Target) -> LongRows | None:
    """The long rows of which the program has the variances; None where it has none, or reduces
    them in another way beside.
    """
    nodes, sizes = program.nodes, program.sizes
    squares = variances_of(nodes)
    known = {*squares, *totals_of(nodes, squares)}
    kinds = {frozenset(nodes[n].reduced) for n in known}
    if len(kinds) != 1:
        return None
    (reduced,) = kinds
    # What is reduced in another way, as by a mean of normalised rows, comes after them.
    others = [n for n, at in enumerate(nodes) if at.op in REDUCING and n not in known]
    first = [n for n in others if known.isdisjoint(cone(nodes, [n]))]
    if any(not reduced.isdisjoint(nodes[n].reduced) for n in first):
        return None
    length, at_once = prod(sizes[d] for d in reduced), _AT_ONCE * target.sms
    rows = LongRows(reduced, tuple(dict.fromkeys(v.elements for v in squares.values())))
    for elements in rows.elements:
        below = [nodes[n] for n in cone(nodes, [elements])]
        if any(n.op in REDUCING for n in below):
            return None
        read = dict.fromkeys(n.access.tensor for n in below if n.op == "load")
        bytes_each = sum(program.tensors[name].dtype.bytes for name in read)
        results = prod(sizes[d] for d in nodes[elements].dims if d not in reduced)
        loads = [n.access for n in below if n.op == "load"]
        tile = length * _beside(program, loads, reduced)
        stay = at_once * tile * bytes_each <= _OF_L2 * target.l2_bytes
        if tile < _LONG or (results > at_once and stay):
            return None
    return rows


def _beside(program: Program, loads: Sequence[Access], reduced: Collection[str]) -> int:
    """How many rows a block reads at once: those whose first elements lie side by side, as where
    channels are last, up to a run that is worth an access.
    """
    distances = {d: _distance(program, loads, d) for d in program.dim_names}
    first = min(distances[d] for d in reduced)
    rows = prod(n for d, n in program.sizes.items() if distances[d] < first)
    run = _run(program, distances, reduced)
    return max(1, min(rows if run == 1 else _LONG_RUN, _LONG_RUN // run))


def _run(program: Program, distances: Mapping[str, float], reduced: Collection[str]) -> int:
    """Elements of a row that lie side by side."""
    beside = min((x for d, x in distances.items() if d not in reduced), default=inf)
    return prod(program.sizes[d] for d in reduced if distances[d] < beside)


def variances_of(nodes: Sequence[Node]) -> dict[int, Variance]:
    """The sums of squared distances from a value that was made of a sum of the same elements."""
    found: dict[int, Variance] = {}
    for number, node in enumerate(nodes):
        if node.op != "sum":
            continue
        squared = nodes[node.args[0]]
        is_product = squared.op == "mul" and squared.args[0] == squared.args[1]
        distance = nodes[squared.args[0]] if squared.op == "square" or is_product else node
        if distance.op != "sub":
            continue
        for elements, middle in (distance.args, distance.args[::-1]):
            below = [nodes[n] for n in cone(nodes, [middle])]
            is_mean = any(n.op == "sum" and n.args == (elements,) for n in below)
            if is_mean and frozenset(node.reduced).isdisjoint(nodes[middle].dims):
                found[number] = Variance(elements, middle)
    return found


def totals_of(nodes: Sequence[Node], squares: Mapping[int, Variance]) -> dict[int, int]:
    """The sums of what there is a variance of, with what they are of."""
    elements = {v.elements for v in squares.values()}
    return {
        n: node.args[0]
        for n, node in enumerate(nodes)
        if node.op == "sum" and node.args[0] in elements and n not in squares
    }


@dataclass(frozen=True, slots=True)
class Cut:
    """How rows are cut into parts: ``outer`` count the parts, of which one comes about by splitting
    ``dim`` in ``splits``, unless dimensions are parts as they are.
    """

    outer: tuple[str, ...]
    dim: str = ""
    splits: int = 1


def cuts_into_parts(program: Program, target: Target) -> list[Cut]:
    """The ways to cut the rows of which a program has variances into parts that lie side by side;
    none where they are not long.
    """
    rows = long_variances(program, target)
    if rows is None:
        return []
    nodes, reduced = program.nodes, rows.reduced
    loads = [nodes[n].access for n in cone(nodes, rows.elements) if nodes[n].op == "load"]
    distances = {d: _distance(program, loads, d) for d in program.dim_names}
    run = _run(program, distances, reduced)
    found = []
    for most in _ALONG if run >= _LONG_RUN else (run * points for points in _ACROSS):
        cut, left = cut_along(program, sorted(reduced, key=lambda d: (distances[d], d)), most)
        if cut.outer and left <= _SMALLER:
            found.append(cut)
    return list(dict.fromkeys(found))


def cut_along(program: Program, dims: Iterable[str], most: int) -> tuple[Cut, int]:
    """The dimensions in parts of ``most`` points or fewer, the first ones inside a part, and how
    many times more points a part might have.
    """
    left, outer, cut = most, list[str](), Cut(())
    for dim in dims:
        size = program.sizes[dim]
        if not outer and size <= left:
            left //= size
            continue
        inner = 1 if outer else max(n for n in range(1, left + 1) if size % n == 0)
        part = outer_dim(dim)
        if inner > 1 and part not in program.sizes and part not in program.tensors:
            left //= inner
            cut = Cut((), dim, size // inner)
            outer.append(part)
        else:
            outer.append(dim)
    return replace(cut, outer=tuple(outer)), left


def _distance(program: Program, loads: Sequence[Access], dim: str) -> float:
    """How many elements neighbours along a dimension are apart in memory, at least."""
    found = []
    zero = dict.fromkeys(program.dim_names, 0)
    for access in loads:
        strides = program.tensors[access.tensor].element_strides
        if dim not in access.dims() or access.is_look_up:
            continue
        ends = ([int(e.evaluate(at)) for e in access.index] for at in (zero, {**zero, dim: 1}))
        first, next_one = ends
        found.append(sum(s * (b - a) for s, a, b in zip(strides, first, next_one, strict=True)))
    return min(found, default=inf)


def _families(
    program: Program,
    cut: Cut,
    search: Search,
    best: Callable[[Sequence[UGraph]], Timed],
    may: Callable[[UGraph], bool],
) -> list[UGraph]:
    """Those whose parts are cut so: kernels of the split program, not of the one with combined
    variances, so that verification compares them with sums over whole rows.
    """
    whole = split_dim(program, cut.dim, cut.splits) if cut.dim else program
    combined = combined_variances(whole, cut.outer)
    rows = RowValues(combined.program, along(whole))
    stored = stored_tensors(combined.program, (*combined.parts, *rows.read), F32)
    first = as_written(piece(combined.program, stored, *combined.parts, outputs=()))
    rest = piece(combined.program, stored, *rows.read, outputs=rows.outputs)
    ends: list[tuple[UGraph, ...]] = [()]
    if rows.others:
        last = piece(combined.program, stored, outputs=rows.others)
        ends = [(u,) for u in endings(last, search, best)]
    tensors = tuple(stored.values())
    middles = combining(rest, combined, cut.outer, search, may)
    made = (in_sequence(whole, (first, m, *end), tensors) for m, end in product(middles, ends))
    return [u for u in made if u is not None]


def along(whole: Program) -> dict[str, None]:
    """The dimensions of the rows of which a program has variances: parts, and what is in one."""
    return dict.fromkeys(d for n in variances_of(whole.nodes) for d in whole.nodes[n].reduced)


def endings(
    last: Program, search: Search, best: Callable[[Sequence[UGraph]], Timed]
) -> list[UGraph]:
    """Kernels for what is computed with what is known of whole rows: as it is written, unless a
    matmul reads it.
    """
    if any(node.op in REDUCING for node in last.nodes):
        return [u for _, u in best(search(last))]
    return [as_written(last)]


def combining(
    rest: Program,
    combined: Combined,
    outer: Collection[str],
    search: Search,
    may: Callable[[UGraph], bool],
) -> list[UGraph]:
    """Kernels for what is known of whole rows, from what is known of their parts."""
    found = [as_written(rest)]
    if _least_tile(combined.program, outer, combined.parts[0]) > _ONE_TILE:
        longest = max(outer, key=lambda d: rest.sizes[d])
        looped = (u for u in search(rest) if _loops_over(u, longest) and may(u))
        found = list(islice(looped, 1))
    return found


def _loops_over(ugraph: UGraph, dim: str) -> bool:
    blocks = (k for k in ugraph.kernels if isinstance(k, BlockGraph))
    return any(section.loop == dim for block in blocks for section in block.sections)


def _least_tile(combined: Program, outer: Collection[str], part: int) -> int:
    """Elements of the smallest tile that has a value of all parts of a row."""
    *_, last = axes_as_read(combined, combined.nodes[part].dims)
    beside = 1 if last in outer else min(_ROWS_BESIDE, next_power_of_two(combined.sizes[last]))
    return beside * prod(next_power_of_two(combined.sizes[d]) for d in outer)


def as_written(program: Program) -> UGraph:
    """One kernel without loops: laws that are true of numbers would make a difference of squares of
    a variance, and lose what was won.
    """
    nodes = list(program.nodes)
    for output in program.outputs:
        store = Node("store", (output.node,), Access(output.tensor.name, output.index))
        dims = node_dims(store, [nodes[output.node].dims], program.dim_names)
        nodes.append(replace(store, dims=dims))
    reduced = {d for n in nodes if n.op in REDUCING for d in n.reduced}
    used = {d for n in nodes for d in n.dims}
    grid = tuple(GridAxis(d) for d in program.dim_names if d in used - reduced)
    straight = Section(tuple(range(len(nodes))))
    block = BlockGraph(kernel_name(program.name), grid, tuple(nodes), (straight,))
    return UGraph(program, (block,))


@dataclass(frozen=True, slots=True)
class Combined:
    """A split program with the variances of parts combined: what of, and the values of parts."""

    program: Program
    elements: tuple[int, ...]
    parts: tuple[int, ...]


def combined_variances(
    whole: Program, outer: Collection[str], rounded: DType | None = None
) -> Combined:
    """The split program with the variances of parts combined; elements are ``rounded`` to a type
    before, where one is given.
    """
    squares = variances_of(whole.nodes)
    totals = totals_of(whole.nodes, squares)
    elements_of = dict.fromkeys(v.elements for v in squares.values())
    builder = ProgramBuilder(whole.name, whole.fp32_precision)
    for d in whole.dims:
        builder.dim(d.name, d.size)
    for t in whole.inputs:
        builder.input(t.name, t.shape, t.dtype, t.strides)
    apply, new, parts = builder.apply, list[int](), list[int]()
    for number, node in enumerate(whole.nodes):
        if number not in totals and number not in squares:
            new.append(copied(builder, node, [new[a] for a in node.args]))
            if rounded is not None and number in elements_of:
                new[-1] = builder.cast(new[-1], rounded)
            continue
        between = [d for d in node.reduced if d in outer]
        inner = [d for d in node.reduced if d not in outer]
        of = squares.get(number)
        elements = new[of.elements if of else totals[number]]
        count = reduce(partial(apply, "mul"), map(builder.size, inner))
        total = builder.sum(elements, inner)
        mean = apply("div", total, count)
        distance = apply("sub", elements, mean)
        # Sums of halves are as good as exact.
        rest = builder.sum(distance, inner) if rounded is None else None
        parts += [total] if rest is None else [mean, rest]
        if of is None:
            share = total if rest is None else apply("add", apply("mul", mean, count), rest)
        else:
            parts.append(builder.sum(apply("square", distance), inner))
            apart = apply("sub", mean, new[of.middle])
            weight = apply("mul", apart, count)
            weight = weight if rest is None else apply("add", apply("add", rest, rest), weight)
            share = apply("add", parts[-1], apply("mul", apart, weight))
        new.append(builder.sum(share, between))
    builder.outputs.extend(Output(o.tensor, new[o.node], o.index) for o in whole.outputs)
    live = cone(builder.nodes, [o.node for o in builder.outputs])  # which the program has
    return Combined(
        builder.build(),
        tuple(live.index(new[e]) for e in elements_of),
        tuple(live.index(n) for n in dict.fromkeys(parts)),
    )


class RowValues:
    """What a program knows of whole rows, which go ``along`` some dimensions, if not all that it
    reduces: the values that are ``read`` beside their elements, the
    ``outputs`` that are such values, and the ``others``.
    """

    def __init__(self, program: Program, along: Collection[str] = ()) -> None:
        nodes = program.nodes
        reduced = {*along} or {d for n in nodes if n.op in REDUCING for d in n.reduced}
        are_made: list[bool] = []
        for node in nodes:
            reduces = node.op in REDUCING and not reduced.isdisjoint(node.reduced)
            are_made.append(reduces or any(are_made[a] for a in node.args))

        def is_of_row(value: int) -> bool:
            return are_made[value] and reduced.isdisjoint(nodes[value].dims)

        self.outputs = [o for o in program.outputs if is_of_row(o.node)]
        self.others = [o for o in program.outputs if o not in self.outputs]
        todo = [o.node for o in self.others]
        seen: dict[int, None] = {}
        while todo:
            value = todo.pop()
            if value not in seen:
                seen[value] = None
                todo += () if is_of_row(value) else nodes[value].args
        self.read = sorted(filter(is_of_row, seen))
