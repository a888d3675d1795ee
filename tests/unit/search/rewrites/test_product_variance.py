"""Variances of matmuls' results: statistics of tiles, stored beside them, and combined."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mirage_py.codegen.cuda.kernel.module import emit_cuda
from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import normalise
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.type_screen import TypeScreen
from mirage_py.search.enumerate.search import search
from mirage_py.search.extract.task import SearchLimits
from mirage_py.search.rank.kernel_choices import KernelRanker
from mirage_py.search.rank.shortlist import best_families
from mirage_py.search.rewrites.parallel_variance import Cut
from mirage_py.search.rewrites.pieces import Timed
from mirage_py.search.rewrites.product_variance import (
    cut_into_tiles,
    varying_products,
    with_product_variance,
)
from mirage_py.targets import H200
from mirage_py.ugraph.interpret import evaluate_ugraph
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.launch_choices import Arch, StoreMode
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.verify.field_test.families import FamilyTests
from mirage_py.verify.rounding.float_screen import FloatScreen
from mirage_py.verify.rounding.kernel_meaning import KernelMeaning

NORMED = """M = {m}, N = {n}, D = {d}
X[M, D], W[N, D], B[N] : {dtype}
let P[m, n] = sum[d](X[m, d] * W[n, d]) + B[n]
let A[n] = sum[m](P[m, n]) / {m}
let V[n] = sum[m](square(P[m, n] - A[n])) / {m}
Y[m, n] = relu((P[m, n] - A[n]) / sqrt(V[n] + 0.00001))"""
IMAGES = """B = 4, S = {s}, T = {s}, C = 16, N = 32
X[B, S, T, C], W[N, C] : bf16
let P[b, s, t, n] = sum[c](X[b, s, t, c] * W[n, c])
let A[n] = sum[b, s, t](P[b, s, t, n]) / {rows}
let V[n] = sum[b, s, t](square(P[b, s, t, n] - A[n])) / {rows}
Y[b, s, t, n] = (P[b, s, t, n] - A[n]) / sqrt(V[n] + 0.00001)"""


def program_of(m: int, n: int, d: int, dtype: str = "bf16") -> Program:
    return replace(normalise(parse(NORMED.format(m=m, n=n, d=d, dtype=dtype))), name="normed")


def families_of(program: Program) -> list[UGraph]:
    ranker = KernelRanker(H200, "cuda")

    def of_one_kernel(what: Program) -> list[UGraph]:
        return [f.ugraph for f in search(what, limits=SearchLimits(max_kernels=1)).families]

    def best(families: object) -> Timed:
        return best_families(families, ranker)  # type: ignore[arg-type]

    return with_product_variance(program, of_one_kernel, best, lambda _: True)


@pytest.fixture(scope="module")
def families() -> list[UGraph]:
    return families_of(program_of(384, 40, 4096))


def test_they_are_equal_to_the_program(families: list[UGraph]) -> None:
    program = program_of(384, 40, 4096)
    stored = [(f.intermediates[0].dtype.name, len(f.kernels)) for f in families]
    assert stored == [("bf16", 2), ("bf16", 3), ("f32", 2), ("f32", 3)]
    tests = FamilyTests(program, trials=2, seed=0)
    for family in families:
        first = family.kernels[0]
        assert isinstance(first, BlockGraph)
        assert [a.dim for a in first.grid] == ["m_part", "n"]
        assert tests.run(family).equal
        assert not FloatScreen().fault(family)
    # A part whose distance from the mean does not weigh as much as it has rows.
    last = families[0].kernels[-1]
    assert isinstance(last, BlockGraph)
    (size, *_) = (n for n, node in enumerate(last.nodes) if node.op == "size" and node.attr == "m")
    nodes = list(last.nodes)
    nodes[size] = replace(nodes[size], op="const", attr=1.0)
    wrong = replace(last, nodes=tuple(nodes))
    assert not tests.run(replace(families[0], kernels=(*families[0].kernels[:-1], wrong))).equal


# A number and a bias below a value are above it, too; and a value is made of another one.
SCALED = NORMED.replace("* W[n, d]) + B[n]", "* W[n, d]) / {m} + B[n]")
OF_ANOTHER = """M = {m}, N = {n}, D = {d}
X[M, D], W[N, D], B[N] : {dtype}
let P[m, n] = sum[d](X[m, d] * W[n, d]) + B[n]
let Q[m, n] = tanh(P[m, n]) * B[n]
let A[n] = sum[m](P[m, n]) / {m}
let V[n] = sum[m](square(P[m, n] - A[n])) / {m}
let C[n] = sum[m](Q[m, n]) / {m}
let U[n] = sum[m](square(Q[m, n] - C[n])) / {m}
Y[m, n] = (P[m, n] - A[n]) / sqrt(V[n] + 0.00001) + (Q[m, n] - C[n]) / sqrt(U[n] + 0.00001)"""


@pytest.mark.parametrize("text", [SCALED, OF_ANOTHER])
def test_statistics_are_made_of_their_value_alone(text: str) -> None:
    program = normalise(parse(text.format(m=384, n=40, d=512, dtype="bf16")))
    found = families_of(program)
    assert found
    tests = FamilyTests(program, trials=2, seed=0)
    assert all(tests.run(family).equal for family in found[:2])


def test_some_kernel_fits_where_operands_of_all_rows_do_not() -> None:
    """Of 245 rows of 256 inner positions a block has no room: without a loop nothing fitted."""
    found = families_of(program_of(31360, 64, 256))
    ((us, _), *_) = best_families(found, KernelRanker(H200, "cuda"))
    assert us < 30.0


def test_statistics_are_of_what_is_stored(families: list[UGraph]) -> None:
    """3000 and 3006 are one number in bfloat16, and nothing is left of their difference, as in
    PyTorch: with statistics of what was not rounded all of it was 1.7.
    """
    family = families[0]
    sizes = family.program.sizes
    x = np.zeros((sizes["m_part"] * sizes["m"], sizes["d"], 1))
    x[:, 0] = 1.0
    x[:, 1] = np.random.default_rng(0).choice([-1.0, 1.0], x[:, 1].shape)
    w = np.zeros((sizes["n"], sizes["d"], 1))
    w[:, 0], w[:, 1] = 3003.0, 3.0
    b = np.zeros((sizes["n"], 1))
    given: dict[str, FloatArray] = {"X": x, "W": w, "B": b}
    blocks = [
        replace(
            k,
            grid=tuple(replace(a, tile=sizes[a.dim]) for a in k.grid),
            sections=tuple(replace(s, tile=sizes[s.loop] if s.loop else None) for s in k.sections),
        )
        for k in family.kernels
        if isinstance(k, BlockGraph)
    ]
    whole = replace(family, kernels=tuple(blocks))
    (y,) = evaluate_ugraph(whole, given, KernelMeaning(np.float32, 1)).values()
    assert np.max(np.abs(y)) < 1e-3


def test_no_doubt_is_cast_on_rounding_that_pytorch_does(families: list[UGraph]) -> None:
    for family in families[:2]:
        options = tuple(LaunchConfig() for _ in family.kernels)
        assert not TypeScreen().doubt(Plan(_tiled(family, 16, 64), options, "cuda"))


def test_tiles_of_256_columns_and_the_rows_of_warp_groups() -> None:
    """Rows that no tile divides, and columns; the sums of columns are shared out among lanes, and
    added up once.
    """
    m, n, d = 250, 300, 1032
    family = families_of(program_of(m, n, d))[0]
    first = LaunchConfig(
        8, (3,), arch=Arch.SM_90A, producer_warps=True, stores=StoreMode.LANES, persistent_blocks=2
    )
    plan = Plan(_tiled(family, 256, 64), (first, LaunchConfig(4)), "cuda")
    assert "parts are added up" in emit_cuda(plan)[0].source
    rng = np.random.default_rng(0)
    x, w, b = (_bf16(rng.normal(0.5, 1, shape)) for shape in ((m, d), (n, d), (n,)))
    (computed,) = run_emulated(plan, {"X": x, "W": w, "B": b}).values()
    p = x @ w.T + b
    deviation = np.sqrt(p.var(0) + 1e-5)
    wanted = np.maximum((p - p.mean(0)) / deviation, 0.0)
    rounding = 2.0**-8 * (np.abs(p) / deviation + wanted) + 1e-3
    assert np.max(np.abs(computed - wanted) / rounding) < 1.0


def test_parts_of_images_are_lines_or_several_short_ones() -> None:
    for s, cut in ((56, Cut(("s", "b"))), (7, Cut(("b",)))):
        program = parse(IMAGES.format(s=s, rows=4 * s * s))
        assert cut_into_tiles(program, varying_products(program)) == cut


def test_a_tile_has_several_lines_of_an_image() -> None:
    """Parts of two lines of 112 pixels had 32 rows of padding, in tiles of 16 columns: the matmul
    took 30 times as long.
    """
    program = replace(normalise(parse(IMAGES.format(s=112, rows=4 * 112**2))), name="images")
    found = families_of(program)
    first, *_ = found[0].kernels
    assert isinstance(first, BlockGraph)
    assert [a.dim for a in first.grid] == ["b", "s", "n"]
    assert FamilyTests(program, trials=2, seed=0).run(found[0]).equal
    ((us, _), *_) = best_families(found, KernelRanker(H200, "cuda"))
    written = 4 * 112**2 * 32 * 4
    assert us < 10 * written / H200.dram_bytes_per_us


@pytest.mark.parametrize("m", [96, 509])
def test_rows_that_are_not_cut(m: int) -> None:
    """One tile has them all, or they have no divisors."""
    program = program_of(m, 40, 64)
    assert cut_into_tiles(program, varying_products(program)) is None


def test_other_types_are_stored_in_float32() -> None:
    found = families_of(program_of(256, 40, 64, "f32"))
    assert found
    assert all(t.dtype.name == "f32" for f in found for t in f.intermediates)


def _tiled(family: UGraph, columns: int, inner: int) -> UGraph:
    """Such a tile of the matmul, and a small one of all else."""
    kernels = []
    for kernel in family.kernels:
        assert isinstance(kernel, BlockGraph)
        is_first = any(n.op == "matmul" for n in kernel.nodes)
        tiles = {"m_part": 1, "n": columns if is_first else 32, "m": 8}
        grid = tuple(replace(a, tile=tiles[a.dim]) for a in kernel.grid)
        sections = tuple(replace(s, tile=inner if s.loop else None) for s in kernel.sections)
        kernels.append(replace(kernel, grid=grid, sections=sections))
    return replace(family, kernels=tuple(kernels))


def _bf16(values: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32) & 0xFFFF0000
    return bits.view(np.float32).astype(np.float64)
