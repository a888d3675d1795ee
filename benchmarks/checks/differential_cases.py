"""Kernels that differ from float64 where code generation is wrong: every operator, each element
type that it takes, at sizes that no tile fits.

A case is one kernel that computes many results from the same few inputs; each of its outputs names
the operators that it is there for. ``quick`` is what every test run goes through, ``full`` the
larger cross product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.checks.node_rules import node_dims
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import BF16, BOOL, F16, F32, I8, I32, DType
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import Access, Attr, Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, Section, UGraph
from mirage_py.ugraph.operators import ELEMENTWISE, all_operators, named
from mirage_py.verify.evaluate.element_types import round_to

FLOATS = (F16, BF16, F32)
INTEGERS = (I32, I8, BOOL)
SIZES = (1, 2, 3, 17, 31, 33, 127, 129)
BACKENDS = ("triton", "cuda")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")

Tiles = Mapping[str, int]


@dataclass(frozen=True)
class Case:
    """``operators`` says for each output what it tests; ``sizes`` are those of the dimensions, and
    ``tiles`` those that are cut. Inputs whose name begins with P are positive, those that begin
    with J hold small whole numbers, so that comparisons meet ties.
    """

    group: str
    dtype: DType
    sizes: Mapping[str, int]
    tiles: Tiles
    operators: Mapping[str, tuple[str, ...]]
    plan: Plan

    @property
    def program(self) -> Program:
        """What the kernel computes."""
        return self.plan.ugraph.program

    @property
    def key(self) -> str:
        """Group, type, and each dimension with its tile."""
        parts = [
            f"{d}{size}" + (f"by{self.tiles[d]}" if d in self.tiles else "")
            for d, size in self.sizes.items()
        ]
        return f"{self.group}-{self.dtype}-{'-'.join(parts)}"


class _Results:
    """Collects the outputs of a case while its program is built."""

    def __init__(self, name: str, sizes: Mapping[str, int], dtype: DType) -> None:
        self.builder = ProgramBuilder(name)
        self.dtype = dtype
        self.sizes = dict(sizes)
        self.operators: dict[str, tuple[str, ...]] = {}
        for d, size in sizes.items():
            self.builder.dim(d, size)

    def read(self, name: str, dims: str, dtype: DType | None = None) -> int:
        """An input over the dimensions, each a letter."""
        shape = [self.sizes[d] for d in dims]
        self.builder.input(name, shape, dtype or self.dtype)
        return self.builder.load(name, tuple(dims))

    def add(
        self, node: int, dims: Sequence[ix.IndexExpr | str], *ops: str, dtype: DType | None = None
    ) -> None:
        name = f"Y{len(self.operators)}_{ops[0]}"
        self.builder.output(name, node, tuple(dims), dtype or self.dtype)
        self.operators[name] = ops

    def case(self, group: str, tiles: Tiles) -> Case:
        """One kernel with these tiles on its grid, and all else whole."""
        plan = one_kernel(self.builder.build(), tiles)
        return Case(group, self.dtype, self.sizes, dict(tiles), self.operators, plan)


def one_kernel(program: Program, tiles: Tiles, options: LaunchConfig | None = None) -> Plan:
    """A program as one kernel without loops: ``tiles`` are gridded, the rest is whole."""
    nodes = list(program.nodes)
    for output in program.outputs:
        access = Access(output.tensor.name, output.index)
        dims = tuple(d for d in program.dim_names if d in access.dims())
        nodes.append(Node("store", (output.node,), access, dims))
    grid = tuple(GridAxis(d, t) for d, t in tiles.items())
    block = BlockGraph(
        f"{program.name}_kernel", grid, tuple(nodes), (Section(tuple(range(len(nodes)))),)
    )
    return Plan(UGraph(program, (block,)), (options or LaunchConfig(),))


# -- elementwise ---------------------------------------------------------------------------------

_UNARY = tuple(o.name for o in all_operators() if o.kind == ELEMENTWISE and o.arity == 1)
_BINARY = tuple(
    o.name for o in all_operators() if o.kind == ELEMENTWISE and o.arity == 2 and not o.is_bitwise
)
_POSITIVE = ("pow", *named(lambda o: o.least > -np.inf))


def unary(dtype: DType, m: int, n: int, tiles: Tiles) -> Case:
    """Every function of one operand."""
    r = _Results("unary", {"m": m, "n": n}, dtype)
    x, p = r.read("X", "mn"), r.read("P", "mn")
    for op in _UNARY:
        if op not in ("cast", "shift"):
            r.add(r.builder.apply(op, p if op in _POSITIVE else x), "mn", op)
    return r.case("unary", tiles)


def binary(dtype: DType, m: int, n: int, tiles: Tiles) -> Case:
    """Every function of two operands, and a choice: broadcast by name, comparisons with ties."""
    r = _Results("binary", {"m": m, "n": n}, dtype)
    b = r.builder
    x, v, p = r.read("X", "mn"), r.read("V", "n"), r.read("P", "mn")
    j, k = r.read("J", "mn"), r.read("JV", "m")
    for op in _BINARY:
        if op in COMPARISONS:
            truth = b.apply(op, j, k)
            r.add(truth, "mn", op, dtype=BOOL)
            r.add(b.apply("mul", truth, x), "mn", op, "mul")
            r.add(b.apply("where", b.apply(op, k, j), x, v), "mn", op, "where")
        else:
            # A divisor or a base near 0 would test how errors grow, not how code is emitted.
            left, right = (p, v) if op == "pow" else (v, p) if op == "div" else (x, v)
            r.add(b.apply(op, left, right), "mn", op)
    r.add(b.apply("where", j, x, b.const(-2.0)), "mn", "where", "const")
    r.add(b.apply("sub", b.const(1.0), x), "mn", "sub", "const")
    return r.case("binary", tiles)


def scalars(dtype: DType, m: int, n: int, tiles: Tiles) -> Case:
    """Every function of plain numbers, alone and beside a tile."""
    r = _Results("scalars", {"m": m, "n": n}, dtype)
    b = r.builder
    p = r.read("P", "mn")
    for op in _UNARY:
        if op not in ("cast", "shift", "exp"):
            r.add(b.apply("minimum", p, b.apply(op, b.size("n"))), "mn", op, "size")
    for op in _BINARY:
        if op not in COMPARISONS:
            r.add(b.apply(op, b.const(1.5), p), "mn", op, "const")
            r.add(b.apply(op, p, b.const(0.75)), "mn", op, "const")
        r.add(b.apply("maximum", p, b.apply(op, b.size("n"), b.const(1.5))), "mn", op, "size")
    chosen = b.apply("where", b.apply("lt", b.size("n"), b.const(20.0)), b.const(2.0), p)
    r.add(chosen, "mn", "where", "const")
    return r.case("scalars", tiles)


def casts(dtype: DType, m: int, n: int, tiles: Tiles) -> Case:
    """From one type to all others. What goes to integers is a whole number: how a fraction is
    rounded is no part of the language.
    """
    r = _Results("casts", {"m": m, "n": n}, dtype)
    j = r.read("J", "mn")
    for to in (*FLOATS, *INTEGERS):
        if to != dtype:
            r.add(r.builder.cast(j, to), "mn", "cast", dtype=to)
    if dtype.is_float:
        x = r.read("X", "mn")
        for to in FLOATS:
            rounded = r.builder.cast(x, to)
            r.add(r.builder.apply("mul", rounded, rounded), "mn", "cast", "mul", dtype=F32)
    return r.case("casts", tiles)


def integers(dtype: DType, m: int, n: int, tiles: Tiles) -> Case:
    """Integers and truth values among floats: masks, labels, counts."""
    r = _Results("integers", {"m": m, "n": n}, dtype)
    b = r.builder
    j, k, x = r.read("J", "mn"), r.read("JV", "n"), r.read("X", "mn", F32)
    r.add(b.apply("mul", j, x), "mn", "mul", dtype=F32)
    r.add(b.apply("add", j, x), "mn", "add", dtype=F32)
    r.add(b.apply("where", j, x, b.const(0.5)), "mn", "where", dtype=F32)
    r.add(b.apply("eq", k, b.index(ix.dim("n"))), "n", "eq", "index", dtype=BOOL)
    r.add(b.apply("where", b.apply("le", j, k), x, b.const(-1.0)), "mn", "le", dtype=F32)
    r.add(b.sum(j, ("n",)), "m", "sum", dtype=F32)
    r.add(b.max(j, ("n",)), "m", "max", dtype=F32)
    r.add(j, "mn", "load", "store")
    if dtype != BOOL:
        r.add(b.apply("maximum", j, k), "mn", "maximum")
        r.add(b.apply("sub", j, k), "mn", "sub")
    # A reduction over a gridded dimension is no µGraph of one kernel.
    return r.case("integers", {d: t for d, t in tiles.items() if d != "n"})


# -- leaves --------------------------------------------------------------------------------------


def leaves(dtype: DType, m: int, n: int, tiles: Tiles) -> Case:
    """Numbers that come from positions, and loads of every layout."""
    r = _Results("leaves", {"h": 4, "m": m, "n": n}, dtype)
    b = r.builder
    b.input("T", (n, m), dtype)
    b.input("S", (m, n), dtype, strides=(1, m))
    b.input("G", (m, n), dtype, strides=(2 * n + 3, 2))
    b.input("E", (m, n), dtype, strides=(0, 1))
    b.input("R", (2, m + 2), dtype)
    r.add(b.load("T", ("n", "m")), "mn", "load")
    r.add(b.load("S", ("m", "n")), "mn", "load")
    r.add(b.load("G", ("m", "n")), "mn", "load")
    r.add(b.load("E", ("m", "n")), "mn", "load")
    b.input("N", (m, n), dtype, strides=(0, 0))
    r.add(b.load("N", ("m", "n")), "mn", "load")
    r.add(b.load("R", (ix.dim("h") // 2, ix.dim("m") + 2)), "hm", "load")
    r.add(b.load("R", (ix.dim("h") % 2, ix.dim("m"))), (ix.dim("m") * 4 + ix.dim("h"),), "load")
    position = b.index(ix.dim("n") * 2 - ix.dim("m"))
    r.add(b.apply("mul", position, b.const(0.125)), "mn", "index", "const")
    # Two rows apart: the border runs through tiles and along their edges.
    for text, offset in (("le", 0), ("lt", 2), ("ge", -1), ("eq", 1)):
        truth = b.mask(ix.compare(text, ix.dim("n"), ix.dim("m") + offset))
        r.add(b.apply("mul", truth, b.load("T", ("n", "m"))), "mn", "mask", "mul")
    r.add(b.apply("div", b.load("T", ("n", "m")), b.size("n")), "mn", "size", "div")
    r.add(b.const(3.0), "n", "const", "store")
    r.add(b.load("R", (ix.const(0), ix.dim("m"))), "mn", "load", "store")
    return r.case("leaves", tiles)


# -- reductions and products ---------------------------------------------------------------------


def reductions(dtype: DType, m: int, n: int, tiles: Tiles) -> Case:
    """Sums and maxima over each choice of dimensions, of values that padding would spoil."""
    r = _Results("reductions", {"h": 3, "m": m, "n": n}, dtype)
    b = r.builder
    x = r.read("X", "hmn")
    # exp(0) is 1 in the padding, and its negative is less than 0.
    spoilt = b.apply("neg", b.apply("exp", x))
    for over in ("m", "n", "mn"):
        rest = tuple(d for d in "hmn" if d not in over)
        for value in (x, spoilt):
            r.add(b.sum(value, over), rest, "sum")
            r.add(b.max(value, over), rest, "max")
        r.add(b.mean(x, over), rest, "sum", "div", "size")
    b.input("E", (m, n), dtype, strides=(0, 1))
    b.input("N", (m, n), dtype, strides=(0, 0))
    for over in ("m", "n", "mn"):
        rest = tuple(d for d in "mn" if d not in over)
        r.add(b.sum(b.load("E", "mn"), over), rest, "sum", "load")
        r.add(b.sum(b.load("N", "mn"), over), rest, "sum", "load")
    shift = b.apply("shift", b.max(x, ("n",)))
    weights = b.apply("exp", b.apply("sub", x, shift))
    share = b.apply("div", weights, b.sum(weights, ("n",)))
    r.add(share, "hmn", "shift", "exp")
    return r.case("reductions", {**tiles, "h": 1})


def products(dtype: DType, m: int, n: int, tiles: Tiles) -> Case:
    """Matrix products of stored and of computed operands, transposed, batched, with a vector."""
    k = min(max(3, n // 2), 21)
    r = _Results("products", {"h": 2, "m": m, "j": 2, "k": k, "n": n}, dtype)
    b = r.builder
    a, w, wt, g = r.read("A", "mk"), r.read("W", "kn"), r.read("WT", "nk"), r.read("G", "k")
    r.add(b.matmul(a, w, ("k",)), "mn", "matmul")
    r.add(b.matmul(a, b.apply("exp", wt), ("k",)), "mn", "matmul", "exp")
    r.add(b.matmul(b.apply("mul", a, g), w, ("k",)), "mn", "matmul", "mul")
    r.add(b.matmul(g, w, ("k",)), "n", "matmul")
    r.add(b.matmul(r.read("AH", "hmk"), r.read("WH", "hkn"), ("k",)), "hmn", "matmul")
    r.add(b.matmul(r.read("AJ", "mjk"), r.read("WJ", "jkn"), ("j", "k")), "mn", "matmul")
    r.add(b.matmul(b.load("AH", "hmk"), w, ("k",)), "hmn", "matmul")
    return r.case("products", {**tiles, "h": 1})


# -- state and effects ---------------------------------------------------------------------------


def state(dtype: DType, m: int, n: int, tiles: Tiles) -> Case:
    """Every accumulator: sums, maxima, and sums rescaled by a maximum that moves."""
    r = _Results("state", {"m": m, "n": n, "e": 19}, dtype)
    b = r.builder
    z, v = r.read("Z", "mn"), r.read("V", "ne")
    power = b.apply("exp", z)
    total = b.sum(power, "n")
    squares = b.sum(b.apply("square", power), "n")
    r.add(b.sum(z, "n"), "m", "accum_sum", "sum", dtype=F32)
    r.add(b.max(z, "n"), "m", "accum_max", "max")
    r.add(b.matmul(z, v, "n"), "me", "accum_sum", "matmul", dtype=F32)
    mean = b.apply("div", b.matmul(power, v, "n"), total)
    r.add(mean, "me", "accum_rescaled", "accum_max", "matmul")
    spread = b.apply("div", squares, b.apply("square", total))
    r.add(spread, "m", "accum_rescaled", "square", dtype=F32)
    k = _Block(b.build())
    z, v = k.load("Z", "mn"), k.load("V", "ne")
    top = k.add("max", z, attr=("n",))
    peak = k.add("accum_max", top, attr="shift")
    power = k.add("exp", k.add("sub", z, peak))

    def rescaled(value: int, degree: int) -> int:
        return k.add("accum_rescaled", value, peak, attr=(degree,))

    row = k.add("accum_sum", k.add("sum", z, attr=("n",)))
    highest = k.add("accum_max", top)
    dot = k.add("accum_sum", k.add("matmul", z, v, attr=("n",)))
    total = rescaled(k.add("sum", power, attr=("n",)), 1)
    weighted = rescaled(k.add("matmul", power, v, attr=("n",)), 1)
    squares = rescaled(k.add("sum", k.add("square", power), attr=("n",)), 2)
    k.end_loop("n", tiles.get("n", n))
    spread = k.add("div", squares, k.add("square", total))
    k.store(row, highest, dot, k.add("div", weighted, total), spread)
    return k.case(r, "state", {"m": tiles.get("m", m)})


def effects(dtype: DType, m: int, n: int, tiles: Tiles) -> Case:
    """Stores that the first block makes, and additions that all blocks make: those along n each
    have a part of the sums, those along m the same sums of rows of W.
    """
    r = _Results("effects", {"m": m, "n": n, "e": 5}, dtype)
    b = r.builder
    x, w = r.read("X", "mn"), r.read("W", "ne")
    r.add(b.matmul(x, w, "n"), "me", "store_add", dtype=F32)
    r.add(b.sum(x, "n"), "m", "store_add", dtype=F32)
    r.add(b.sum(w, "e"), "n", "store", "sum")
    k = _Block(b.build())
    x, w = k.load("X", "mn"), k.load("W", "ne")
    total = k.add("sum", w, attr=("e",))
    k.store(k.add("mul", x, w), x, total, ops=("store_add", "store_add", "store"))
    return k.case(r, "effects", {"m": tiles.get("m", m), "n": tiles.get("n", n)})


class _Block:
    """Collects the nodes of a kernel with a loop or with additions."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.nodes: list[Node] = []
        self.sections: list[Section] = []
        self.first = 0

    def add(self, op: str, *args: int, attr: Attr = None) -> int:
        node = Node(op, args, attr)
        operands = [self.nodes[a].dims for a in args]
        dims = node_dims(node, operands, self.program.sizes)
        self.nodes.append(replace(node, dims=self.program.order(dims)))
        return len(self.nodes) - 1

    def load(self, tensor: str, dims: str) -> int:
        return self.add("load", attr=Access(tensor, tuple(map(ix.dim, dims))))

    def end_loop(self, dim: str, tile: int) -> None:
        """All nodes so far are in this loop."""
        self.sections.append(Section(tuple(range(self.first, len(self.nodes))), dim, tile))
        self.first = len(self.nodes)

    def store(self, *values: int, ops: Sequence[str] = ()) -> None:
        """The outputs in order."""
        for place, (value, output) in enumerate(zip(values, self.program.outputs, strict=True)):
            access = Access(output.tensor.name, output.index)
            self.add(ops[place] if ops else "store", value, attr=access)

    def case(self, results: _Results, group: str, tiles: Tiles) -> Case:
        self.sections.append(Section(tuple(range(self.first, len(self.nodes)))))
        grid = tuple(GridAxis(d, t) for d, t in tiles.items())
        loops = {s.loop: s.tile or 1 for s in self.sections if s.loop}
        block = BlockGraph(f"{group}_kernel", grid, tuple(self.nodes), tuple(self.sections))
        plan = Plan(UGraph(self.program, (block,)), (LaunchConfig(4, (2,)),))
        cut = {**tiles, **loops}
        return Case(group, results.dtype, results.sizes, cut, results.operators, plan)


# -- the tables ----------------------------------------------------------------------------------

Make = Callable[[DType, int, int, Tiles], Case]

# What may be cut: a reduced dimension stays whole in a kernel without loops.
_GROUPS: tuple[tuple[Make, tuple[DType, ...], str], ...] = (
    (unary, FLOATS, "mn"),
    (binary, FLOATS, "mn"),
    (scalars, FLOATS, "m"),
    (casts, (*FLOATS, *INTEGERS), "mn"),
    (integers, INTEGERS, "m"),
    (leaves, FLOATS, "mn"),
    (reductions, FLOATS, ""),
    (products, FLOATS, "mn"),
    (state, FLOATS, "mn"),
    (effects, FLOATS, "mn"),
)

# Sizes of m and n, and their tiles: with tails, larger than the dimension, no power of two.
_QUICK: tuple[tuple[int, int, Tiles], ...] = (
    (1, 1, {}),
    (2, 33, {"m": 1, "n": 16}),
    (3, 17, {"m": 4, "n": 64}),
    (31, 2, {"m": 16}),
    (17, 129, {"m": 16, "n": 48}),
    (33, 127, {"n": 32}),
)
_FULL_TILES: tuple[Tiles, ...] = (
    {"m": 4},
    {"m": 1, "n": 16},
    {"m": 16, "n": 32},
    {"m": 24, "n": 40},
    {"m": 256, "n": 256},
)


def quick(backend: str = "triton") -> Iterator[Case]:
    """Every group and type at a few sizes that among them hold all of ``SIZES``."""
    yield from _table(_QUICK, backend)


def full(backend: str = "triton") -> Iterator[Case]:
    """Every group and type at each pair of sizes, with one choice of tiles after the other."""
    pairs = list(product(SIZES, SIZES))
    tiles = [_FULL_TILES[(n + n // len(SIZES)) % len(_FULL_TILES)] for n in range(len(pairs))]
    yield from _table([(*pair, t) for pair, t in zip(pairs, tiles, strict=True)], backend)


def _table(shapes: Sequence[tuple[int, int, Tiles]], backend: str) -> Iterator[Case]:
    seen: dict[str, None] = {}
    for make, dtypes, cut in _GROUPS:
        for (m, n, tiles), dtype in product(shapes, dtypes):
            case = make(dtype, m, n, {d: t for d, t in tiles.items() if d in cut})
            if case.key not in seen:
                seen[case.key] = None
                validate_ugraph(case.plan.ugraph)
                yield replace(case, plan=replace(case.plan, backend=backend))


# -- inputs --------------------------------------------------------------------------------------


def draw(case: Case, seed: int = 0) -> dict[str, FloatArray]:
    """The inputs of a case, rounded to their types."""
    arrays = {}
    for number, tensor in enumerate(case.program.inputs):
        rng = np.random.default_rng([seed, number])
        values = rng.standard_normal(tensor.shape)
        if tensor.name.startswith("P"):
            values = np.abs(values) + 0.1
        if tensor.name.startswith("J"):
            low, high = (0, 2) if BOOL in (tensor.dtype, case.dtype) else (-3, 4)
            values = rng.integers(low, high, tensor.shape).astype(np.float64)
        first = tuple(slice(1 if s == 0 else None) for s in tensor.element_strides)
        values = np.broadcast_to(values[first], tensor.shape)
        arrays[tensor.name] = round_to(values, tensor.dtype)
    return arrays
