"""Random programs and µGraphs for property tests."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import strategies as st

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import BF16, F16, F32
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import REDUCING, Access, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.threads import with_threads
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, Section, UGraph

# Operators that floats can take anything through without losing all their digits.
UNARY = ("neg", "square", "abs", "relu", "sigmoid", "silu", "tanh", "gelu", "erf")
BINARY = ("add", "sub", "mul", "maximum", "minimum", "lt", "ge")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def raw_expressions(dims: tuple[str, ...] = ("a", "b", "c")) -> st.SearchStrategy[IndexExpr]:
    """Index expressions in any form, also unfolded ones that the constructors never make."""
    leaves = st.one_of(
        st.sampled_from(dims).map(ix.dim), st.integers(-(10**9), 10**9).map(ix.const)
    )

    def grow(inner):
        return st.one_of(
            st.tuples(inner, inner).map(lambda t: IndexExpr("add", args=t)),
            st.tuples(inner, st.integers(-99, 99)).map(
                lambda t: IndexExpr("mul", value=t[1], args=(t[0],))
            ),
            st.tuples(st.sampled_from(["floordiv", "mod"]), inner, st.integers(1, 99)).map(
                lambda t: IndexExpr(t[0], value=t[2], args=(t[1],))
            ),
        )

    return st.recursive(leaves, grow, max_leaves=10)


def raw_predicates() -> st.SearchStrategy[Predicate]:
    """Conditions in any form."""
    leaves = st.tuples(st.sampled_from(COMPARISONS), raw_expressions(), raw_expressions()).map(
        lambda t: Predicate(t[0], exprs=t[1:])
    )

    def grow(inner):
        return st.one_of(
            inner.map(lambda p: Predicate("not", args=(p,))),
            st.tuples(st.sampled_from(["and", "or"]), inner, inner).map(
                lambda t: Predicate(t[0], args=t[1:])
            ),
        )

    return st.recursive(leaves, grow, max_leaves=4)


@st.composite
def programs(draw) -> Program:
    """Small valid programs: loads through index expressions, masks, reductions, contractions."""
    b = ProgramBuilder(draw(st.sampled_from(["p", "prog_1", "a name, with spaces", "µ"])))
    dims = [b.dim(name, draw(st.integers(1, 5))) for name in ("i", "j", "k")]
    pool: list[int] = []
    for number in range(draw(st.integers(1, 3))):
        index = draw(st.lists(st.sampled_from(dims), min_size=1, max_size=3))
        exprs = [_read_through(draw, b, d) for d in index]
        shape = [e.bounds(b.sizes)[1] + 1 for e in exprs]
        strides = None
        if draw(st.booleans()):
            strides = [draw(st.integers(0, 40)) for _ in shape]
        b.input(f"X{number}", shape, draw(st.sampled_from([F16, BF16, F32])), strides)
        pool.append(b.load(f"X{number}", exprs))
    for _ in range(draw(st.integers(0, 8))):
        pool.append(_grown(draw, b, dims, pool))
    for number in range(draw(st.integers(1, 2))):
        root = pool[-1 - number % len(pool)]
        order = draw(st.permutations(b.nodes[root].dims))
        index = list(order)
        if len(order) > 1 and draw(st.booleans()):
            index = [ix.dim(order[0]) * b.sizes[order[1]] + ix.dim(order[1]), *order[2:]]
        b.output(f"Y{number}", root, index, draw(st.sampled_from([F16, F32])))
    # What no output needs goes; an input that is never read is taken into the last output's sum.
    read = _read_from(b)
    for name in [n for n in b.inputs if n not in read]:
        del b.inputs[name]
    return b.build()


def _read_through(draw, b: ProgramBuilder, d: str) -> IndexExpr:
    kind = draw(st.integers(0, 4))
    expr = ix.dim(d)
    if kind == 1:
        return expr + draw(st.integers(0, 3))
    if kind == 2:
        return expr * draw(st.integers(1, 3))
    if kind == 3:
        return expr // draw(st.integers(1, 3))
    return expr if kind else (expr + draw(st.integers(0, 4))) % b.sizes[d]


def _grown(draw, b: ProgramBuilder, dims: list[str], pool: list[int]) -> int:
    x, y = (draw(st.sampled_from(pool)) for _ in range(2))
    kind = draw(st.integers(0, 7))
    if kind == 0:
        return b.apply(draw(st.sampled_from(UNARY)), x)
    if kind in (1, 2):
        return b.apply(draw(st.sampled_from(BINARY)), x, y)
    if kind == 3:
        d, e = (ix.dim(draw(st.sampled_from(dims))) for _ in range(2))
        condition = ix.compare(draw(st.sampled_from(COMPARISONS)), d, e + draw(st.integers(-2, 2)))
        return b.apply("where", b.mask(condition), x, y)
    if kind == 4:
        finite = st.floats(-4, 4, allow_subnormal=False)
        return b.apply("add", x, b.const(draw(finite)))
    if kind == 5:
        return b.cast(x, draw(st.sampled_from([F16, F32])))
    over = draw(st.lists(st.sampled_from(dims), min_size=1, max_size=2, unique=True))
    if kind == 6:
        return draw(st.sampled_from([b.max, b.mean]))(x, over)
    return b.sum(b.apply("mul", x, y), over)


def _read_from(b: ProgramBuilder) -> list[str]:
    todo = [o.node for o in b.outputs]
    seen = []
    while todo:
        node = b.nodes[todo.pop()]
        todo += node.args
        if node.op == "load":
            seen.append(node.access.tensor)
    return seen


@st.composite
def one_kernel_graphs(draw) -> UGraph:
    """A random program as one kernel without loops, over a random legal grid, which may end in a
    cluster.
    """
    program = draw(programs())
    nodes = list(program.nodes)
    for result in program.outputs:
        dims = program.order(frozenset(d for e in result.index for d in e.dims()))
        nodes.append(Node("store", (result.node,), Access(result.tensor.name, result.index), dims))
    reduced = {d for n in program.nodes if n.op in REDUCING for d in n.reduced}
    stored = [n.dims for n in nodes if n.op == "store"]
    free = [d for d in program.dim_names if d not in reduced and all(d in s for s in stored)]
    chosen = draw(st.lists(st.sampled_from(free), unique=True)) if free else []
    grid = tuple(GridAxis(d, draw(st.integers(1, program.sizes[d] + 1))) for d in chosen)
    grid += draw(_clusters(program, chosen))
    block = BlockGraph("k", grid, tuple(nodes), (Section(tuple(range(len(nodes)))),))
    return UGraph(program, (with_threads(block),))


@st.composite
def _clusters(draw, program: Program, taken: list[str]) -> tuple[GridAxis, ...]:
    """Axes of a cluster, over dimensions that no product contracts; at most 16 blocks."""
    contracted = {d for n in program.nodes if n.op == "matmul" for d in n.reduced}
    free = [d for d in program.dim_names if d not in contracted and d not in taken]
    chosen = draw(st.lists(st.sampled_from(free), unique=True, max_size=2)) if free else []
    least = {d: -(-program.sizes[d] // 4) for d in chosen}
    return tuple(
        GridAxis(d, draw(st.integers(least[d], program.sizes[d])), cluster=True) for d in chosen
    )


@st.composite
def odd_graphs(draw) -> UGraph:
    """Valid µGraphs in unusual dress: open tiles, cut sections, nodes numbered out of order."""
    graph = draw(one_kernel_graphs())
    block = graph.kernels[0]
    if draw(st.booleans()):
        block = replace(block, grid=tuple(replace(a, tile=None) for a in block.grid))
    order = _execution_order(draw, block)
    cuts = sorted(draw(st.lists(st.integers(1, len(order)), max_size=3, unique=True)))
    parts = [tuple(order[a:z]) for a, z in pairwise([0, *cuts, len(order)]) if a < z]
    sections = tuple(Section(part) for part in parts)
    return replace(graph, kernels=(replace(block, sections=sections, threads=()),))


def _execution_order(draw, block: BlockGraph) -> list[int]:
    """Any order in which operands come first."""
    order: list[int] = []
    while len(order) < len(block.nodes):
        ready = [
            n
            for n, node in enumerate(block.nodes)
            if n not in order and all(a in order for a in node.args)
        ]
        order.append(draw(st.sampled_from(ready)))
    return order
