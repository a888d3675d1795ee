"""Convolutions as matmuls over windows of an image, as CUDA plans for sm_90a."""

from __future__ import annotations

from cuda_plans import for_cuda

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import BF16, DType, Fp32Precision
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.launch_choices import Precision
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, Section, UGraph

CHANNELS, RESULTS = 32, 64
PLACE = ix.dim("p")
STEP = ix.dim("k")


def windows(
    place: tuple[IndexExpr, ...],
    extents: dict[str, int],
    image: tuple[int, ...],
    *,
    tiles: dict[str, int],
    loop: int = CHANNELS,
    offsets: tuple[IndexExpr, ...] = (STEP // (3 * CHANNELS), STEP // CHANNELS % 3),
    depth: int = 9 * CHANNELS,
    dtype: DType = BF16,
) -> Plan:
    """Y[n, o, place] = the sum over k of X[n, place + offsets, k % channels] * W[k, o]; of float32
    W[o, k].
    """
    builder = ProgramBuilder("windows")
    for name, size in {"n": 2, "o": RESULTS, **extents, "k": depth}.items():
        builder.dim(name, size)
    n, o = ix.dim("n"), ix.dim("o")
    at = (n, *(p + i for p, i in zip(place, offsets, strict=True)), STEP % CHANNELS)
    packed = (STEP, o) if dtype == BF16 else (o, STEP)
    shape = tuple(builder.sizes[e.name] for e in packed)
    builder.input("X", (2, *image, CHANNELS), dtype)
    builder.input("W", shape, dtype)
    product = builder.matmul(builder.load("X", at), builder.load("W", packed), ("k",))
    result = ("n", "o", *extents)
    builder.output("Y", product, result, dtype)
    program = builder.build().held_to(Fp32Precision("tf32"))
    nodes = (
        Node("load", (), Access("X", at), ("n", *extents, "k")),
        Node("load", (), Access("W", packed), tuple(e.name for e in packed)),
        Node("matmul", (0, 1), ("k",), result),
        Node("accum_sum", (2,), None, result),
        Node("store", (3,), Access("Y", tuple(map(ix.dim, result))), result),
    )
    grid = tuple(GridAxis(d, tiles.get(d, 1)) for d in result)
    sections = (Section((0, 1, 2, 3), "k", loop), Section((4,)))
    block = BlockGraph("windows", grid, nodes, sections)
    precision = None if dtype == BF16 else Precision.TF32
    plan = Plan(UGraph(program, (block,), ()), (LaunchConfig(4, (2,), precision=precision),))
    return for_cuda(plan, arch="sm_90a", producer="warps", products="wgmma")
