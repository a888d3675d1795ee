"""Small operator graphs for the tests of the graph level."""

from __future__ import annotations

from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.graph import Graph, Value
from mirage_py.ugraph.ir.dtypes import BF16, F32


def three_products(*, constant: bool = True, width: int = 1024) -> Graph:
    """q * k + v of three products of one operand."""
    b = GraphBuilder()
    x = b.input("x", (16, width), BF16)
    weights = [b.input(f"w{n}", (width, width), BF16, constant=constant) for n in range(3)]
    q, k, v = (b.apply("matmul", x, w) for w in weights)
    return b.build(b.apply("add", b.apply("mul", q, k), v))


def normed_convolution(*, constant: bool = True) -> Graph:
    """relu(batch norm(conv(x)))."""
    b = GraphBuilder()
    x = b.input("x", (1, 4, 6, 6), F32)
    w = b.input("w", (4, 4, 3, 3), F32, constant=constant)
    norm = [b.input(name, (4,), F32, constant=constant) for name in ("g", "b", "m", "v")]
    y = b.apply("conv2d", x, w, padding=1)
    return b.build(b.apply("relu", b.apply("batch_norm", y, *norm)))


def branches(kernels: tuple[int, ...], *, constant: bool = True) -> Graph:
    """Convolutions of one operand, side by side, as in an inception module."""
    b = GraphBuilder()
    x = b.input("x", (1, 8, 6, 6), F32)
    outputs: list[Value] = []
    for n, k in enumerate(kernels):
        w = b.input(f"w{n}", (4, 8, k, k), F32, constant=constant)
        outputs.append(b.apply("relu", b.apply("conv2d", x, w, padding=k // 2)))
    return b.build(b.apply("concat", *outputs, axis=1))


def low_rank() -> Graph:
    """x W + (x A) B, all weights constant."""
    b = GraphBuilder()
    x = b.input("x", (16, 512), BF16)
    w = b.input("w", (512, 512), BF16, constant=True)
    a = b.input("a", (512, 16), BF16, constant=True)
    c = b.input("c", (16, 512), BF16, constant=True)
    adapted = b.apply("matmul", b.apply("matmul", x, a), c)
    return b.build(b.apply("add", b.apply("matmul", x, w), adapted))
