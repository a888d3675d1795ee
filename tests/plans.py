"""Plans built by hand, for tests of what comes after the search: ``from plans import rms_plan``."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from families import stabilize
from numpy.typing import NDArray

from mirage_py.ugraph.building import composites
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F16, F32, DType
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, Section, UGraph

Arrays = Mapping[str, NDArray[np.float64]]


def _d(*names: str) -> tuple[IndexExpr, ...]:
    return tuple(ix.dim(n) for n in names)


def _load(tensor: str, *dims: str) -> Node:
    return Node("load", (), Access(tensor, _d(*dims)), dims)


def _store(value: int, tensor: str, *dims: str) -> Node:
    return Node("store", (value,), Access(tensor, _d(*dims)), dims)


def rms_program(b: int = 7, d: int = 96, n: int = 50, dtype: DType = F16) -> Program:
    """Y = (rms_norm(X) * G) @ W."""
    builder = ProgramBuilder("rms")
    for name, size in (("b", b), ("d", d), ("n", n)):
        builder.dim(name, size)
    builder.input("X", (b, d), dtype)
    builder.input("G", (d,), dtype)
    builder.input("W", (d, n), dtype)
    x, g, w = builder.load("X", ("b", "d")), builder.load("G", "d"), builder.load("W", ("d", "n"))
    normal = builder.apply("mul", composites.rms_norm(builder, x, ("d",), 1e-6), g)
    builder.output("Y", builder.sum(builder.apply("mul", normal, w), ("d",)), ("b", "n"), dtype)
    return builder.build()


def rms_plan(
    b: int = 7,
    d: int = 96,
    n: int = 50,
    tiles: tuple[int, int, int] = (16, 32, 64),
    dtype: DType = F16,
) -> Plan:
    """One kernel with two loops in a block; ``tiles`` are those of b, n and d."""
    program = rms_program(b, d, n, dtype)
    bd, bn = ("b", "d"), ("b", "n")
    nodes = (
        _load("X", "b", "d"),
        Node("square", (0,), None, bd),
        Node("sum", (1,), ("d",), ("b",)),
        Node("accum_sum", (2,), None, ("b",)),
        Node("size", (), "d", ()),
        Node("div", (3, 4), None, ("b",)),
        Node("const", (), 1e-6, ()),
        Node("add", (5, 6), None, ("b",)),
        Node("sqrt", (7,), None, ("b",)),
        _load("X", "b", "d"),
        _load("G", "d"),
        Node("mul", (9, 10), None, bd),
        _load("W", "d", "n"),
        Node("matmul", (11, 12), ("d",), bn),
        Node("accum_sum", (13,), None, bn),
        Node("div", (14, 8), None, bn),
        _store(15, "Y", "b", "n"),
    )
    sections = (
        Section((0, 1, 2, 3), "d", tiles[2]),
        Section((4, 5, 6, 7, 8)),
        Section((9, 10, 11, 12, 13, 14), "d", tiles[2]),
        Section((15, 16)),
    )
    grid = (GridAxis("n", tiles[1]), GridAxis("b", tiles[0]))
    block = BlockGraph("rms_kernel", grid, nodes, sections)
    return Plan(UGraph(program, (block,)), (LaunchConfig(4, (3, 3)),))


def attention_program(h: int = 2, q: int = 20, s: int = 100, d: int = 16) -> Program:
    """O = softmax(Q @ K) @ V, with K as [h, d, s]; the softmax is written without a shift."""
    builder = ProgramBuilder("attention")
    for name, size in (("h", h), ("q", q), ("s", s), ("d", d), ("e", d)):
        builder.dim(name, size)
    builder.input("Q", (h, q, d), F16)
    builder.input("K", (h, d, s), F16)
    builder.input("V", (h, s, d), F16)
    scores = builder.matmul(
        builder.load("Q", ("h", "q", "d")), builder.load("K", ("h", "d", "s")), ("d",)
    )
    weights = composites.softmax(builder, scores, ("s",))
    out = builder.matmul(weights, builder.load("V", ("h", "s", "e")), ("s",))
    builder.output("O", out, ("h", "q", "e"), F16)
    return builder.build()


def attention_plan(
    h: int = 2, q: int = 20, s: int = 100, d: int = 16, tiles: tuple[int, int] = (16, 32)
) -> Plan:
    """One kernel with a running maximum; ``tiles`` are those of q and s."""
    program = attention_program(h, q, s, d)
    hqs, hqe, hq = ("h", "q", "s"), ("h", "q", "e"), ("h", "q")
    nodes = (
        _load("Q", "h", "q", "d"),
        Node("load", (), Access("K", _d("h", "d", "s")), ("h", "s", "d")),
        Node("matmul", (0, 1), ("d",), hqs),
        Node("exp", (2,), None, hqs),
        Node("sum", (3,), ("s",), hq),
        Node("accum_sum", (4,), None, hq),
        _load("V", "h", "s", "e"),
        Node("matmul", (3, 6), ("s",), hqe),
        Node("accum_sum", (7,), None, hqe),
        Node("div", (8, 5), None, hqe),
        _store(9, "O", "h", "q", "e"),
    )
    sections = (Section((0,)), Section(tuple(range(1, 9)), "s", tiles[1]), Section((9, 10)))
    grid = (GridAxis("q", tiles[0]), GridAxis("h", 1))
    block = BlockGraph("attention_kernel", grid, nodes, sections)
    return Plan(stabilize(UGraph(program, (block,))), (LaunchConfig(4, (2,)),))


def scale_program(
    b: int = 33, d: int = 70, dtype: DType = F16, strides: tuple[int, int] | None = None
) -> Program:
    """Y = X / sum(X^2) per row."""
    builder = ProgramBuilder("scale")
    builder.dim("b", b)
    builder.dim("d", d)
    builder.input("X", (b, d), dtype, strides)
    x = builder.load("X", ("b", "d"))
    total = builder.sum(builder.apply("square", x), ("d",))
    builder.output("Y", builder.apply("div", x, total), ("b", "d"), dtype)
    return builder.build()


def two_kernel_plan(
    b: int = 33, d: int = 70, dtype: DType = F16, strides: tuple[int, int] | None = None
) -> Plan:
    """The sums of a first kernel go through memory to a second one."""
    program = scale_program(b, d, dtype, strides)
    bd = ("b", "d")
    first = (
        _load("X", "b", "d"),
        Node("square", (0,), None, bd),
        Node("sum", (1,), ("d",), ("b",)),
        Node("accum_sum", (2,), None, ("b",)),
        _store(3, "S", "b"),
    )
    second = (
        _load("X", "b", "d"),
        _load("S", "b"),
        Node("div", (0, 1), None, bd),
        _store(2, "Y", "b", "d"),
    )
    kernels = (
        BlockGraph(
            "row_sums",
            (GridAxis("b", 16),),
            first,
            (Section((0, 1, 2, 3), "d", 32), Section((4,))),
        ),
        BlockGraph(
            "divide", (GridAxis("b", 16), GridAxis("d", 32)), second, (Section((0, 1, 2, 3)),)
        ),
    )
    sums = Tensor("S", (b,), F32)
    return Plan(UGraph(program, kernels, (sums,)), (LaunchConfig(2, (1,)), LaunchConfig(2)))


def random_inputs(program: Program, seed: int = 0) -> dict[str, NDArray[np.float64]]:
    """Standard normal values for every input."""
    random = np.random.default_rng(seed)
    return {t.name: random.normal(size=t.shape) for t in program.inputs}


def rms_reference(arrays: Arrays) -> NDArray[np.float64]:
    """What rms_plan computes, in float64."""
    x = arrays["X"]
    normal = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    return np.asarray((normal * arrays["G"]) @ arrays["W"])


def attention_reference(
    arrays: Arrays, seen: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """What attention_plan computes, in float64; ``seen`` are the keys that each row sees."""
    scores = arrays["Q"] @ arrays["K"]
    if seen is not None:
        scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ arrays["V"])


def scale_reference(arrays: Arrays) -> NDArray[np.float64]:
    """What two_kernel_plan computes, in float64."""
    x = arrays["X"]
    return np.asarray(x / (x * x).sum(-1, keepdims=True))


def relative_error(got: NDArray[np.float64], want: NDArray[np.float64]) -> float:
    """Norm of the difference over the norm of the right answer; NaN counts as infinite."""
    error, norm = float(np.linalg.norm(got - want)), float(np.linalg.norm(want))
    if error == 0.0:
        return 0.0
    return error / norm if norm > 0.0 and np.isfinite(error) else float("inf")
