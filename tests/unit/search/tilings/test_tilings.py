"""The number of tilings of a kernel that are considered."""

from __future__ import annotations

import itertools
from math import prod

import pytest
from families import safe_families

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import normalise
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.search.model.cost_model import lower_bound_us
from mirage_py.search.rank.instantiate import rank
from mirage_py.search.tilings import tilings as tilings_module
from mirage_py.search.tilings.tilings import _few_enough, is_sensible, tilings
from mirage_py.targets import H200

ALONE = SearchLimits(rings=("factored",), max_kernels=1)


@pytest.mark.parametrize(("dims", "tiles"), [(1, 1), (2, 8), (4, 5), (12, 8), (30, 2)])
def test_grids_are_few_enough(dims, tiles):
    choices = [tuple(2**n for n in range(tiles))] * dims
    kept = _few_enough(choices)
    assert 1 <= prod(map(len, kept)) <= 1024
    assert all(set(k) <= set(c) for k, c in zip(kept, choices, strict=True))
    if prod(map(len, choices)) <= 1024:
        assert kept == choices


def test_of_a_program_of_many_dimensions_few_tilings_are_looked_at(monkeypatch):
    names = "abcdefghijkl"
    sizes = ", ".join(f"{n.upper()} = 4" for n in names)
    axes, index = ", ".join(names.upper()), ", ".join(names)
    program = parse(f"{sizes}\nX[{axes}] : f16\nY[{index}] = relu(X[{index}])\n")
    looks = itertools.count()
    monkeypatch.setattr(tilings_module, "is_sensible", lambda t: [next(looks)] and is_sensible(t))
    families = search(normalise(program), limits=ALONE).families
    assert rank([f.ugraph for f in families], H200, 8)
    # Not the 3^12 grids that there are: 1,024 of each family, and a few in advance.
    assert 0 < next(looks) < 2 * 1024 * len(families)


@pytest.mark.parametrize(("n", "k", "most"), [(1024, 64, 1), (4096, 4096, 16 * 16)])
def test_blocks_along_columns_of_two_products_repeat_little(n: int, k: int, most: int):
    program = parse(
        f"B = 64, D = 512, N = {n}, K = {k}\nX[B, D], W[D, N], U[D, K] : f16\n"
        "Y[b, n] = sum[d](X[b, d] * W[d, n])\nZ[b, k] = sum[d](X[b, d] * U[d, k])\n"
    )
    found = search(normalise(program), limits=ALONE).families
    (block,) = next(f.ugraph.kernels for f in found if len(f.ugraph.kernels[0].sections) == 2)
    grids = [t.block.grid_tiles for t in tilings(program, block, ())]
    repeats = [min(n // tiles["n"], k // tiles["k"]) for tiles in grids]
    assert grids
    assert max(repeats) <= max(4, most)
    assert min(repeats) in (1, 16)


def test_rows_of_tensor_cores_are_positions_of_several_heads():
    program = parse(
        "H = 8, G = 4, T = 2048, S = 2048, D = 128, E = 128\n"
        "Q[H, G, T, D], K[H, S, D], V[H, S, E] : f16\n"
        "let p[h, g, t, s] = softmax[s](where(s <= t, sum[d](Q[h, g, t, d] * K[h, s, d]), -inf))\n"
        "O[h, g, t, e] = sum[s](p[h, g, t, s] * V[h, s, e])\n"
    )
    families = safe_families(search(normalise(program), limits=ALONE).families).ugraphs
    best, *_ = rank(families, H200, 8)
    (block,) = best.plan.ugraph.kernels
    tiles = block.grid_tiles
    # No row is padding, the keys are read once, and blocks are as tall as those of one head.
    assert tiles["g"] in (1, 4)
    assert tiles["g"] * tiles["t"] >= 64
    assert [s.loop for s in block.sections if s.loop is not None] == ["s"]


GROUPS = """
M = 1024, D = 8192, G = 256, E = 32
X[M, D], W[8192, D], B[G, E] : bf16
let U[m, g, e] = sum[d](X[m, d] * W[g * 32 + e, d]) + B[g, e]
let V[m, g, e] = U[m, g, e] - mean[e](U[m, g, e])
Y[m, g, e] = V[m, g, e] / sqrt(mean[e](V[m, g, e]^2) + 1e-5)
"""


def test_columns_of_tensor_cores_are_those_of_several_groups():
    """A linear layer and a group norm, in one kernel."""
    families = safe_families(search(normalise(parse(GROUPS)), limits=ALONE).families).ugraphs
    ranked = rank(families, H200, 40, "cuda")
    assert all(len(i.plan.ugraph.kernels) == 1 for i in ranked)
    staying = next(i for i in ranked if i.plan.options[0].persistent_blocks)
    (block,) = staying.plan.ugraph.kernels
    assert block.grid_tiles == {"m": 128, "g": 8}
    grids = [t.block.grid_tiles for t in tilings(staying.plan.ugraph.scope, block, ())]
    assert {tiles["g"] for tiles in grids} == {1, 2, 4, 8}


def test_rows_that_a_block_reads_at_several_positions_are_not_divided():
    program = parse(
        "H = 32, S = 512, D = 128\nX[H, S, D], C[S, D] : f16\n"
        "Y[h, s, d] = X[h, s, d] * C[s, d] + X[h, s, (d + 64) % 128]\n"
    )
    block = search(normalise(program), limits=ALONE).families[0].ugraph.kernels[0]
    grids = [t.block.grid_tiles for t in tilings(program, block, ())]
    assert {tiles["d"] for tiles in grids} == {128}
    assert len({tiles["s"] for tiles in grids}) > 3


@pytest.mark.parametrize(
    ("table", "order"),
    [("C[S, D]", ["d", "s", "h"]), ("C[S, D, E], B[H]", ["h", "d", "s"])],
    ids=["held by the L2", "large"],
)
def test_blocks_that_run_together_are_neighbours_in_memory(table: str, order: list[str]):
    """Unless they can share what the L2 does not hold."""
    index = "C[s, d]" if "B" not in table else "C[s, d, 0] * B[h]"
    program = parse(
        f"H = 64, S = 2048, D = 256, E = 16\nX[H, S, D], {table} : f16\n"
        f"Y[h, s, d] = X[h, s, d] * {index}\n"
    )
    block = search(normalise(program), limits=ALONE).families[0].ugraph.kernels[0]
    tiled = next(iter(tilings(program, block, ())))
    assert [a.dim for a in tiled.block.grid] == order


def test_a_loop_over_groups_that_share_a_scale_takes_one_product_an_iteration():
    """On tensor cores, with the scale behind the product: of all plans the first."""
    program = parse(
        "M = 16, N = 4096, G = 32, D = 128\nX[M, G, D] : bf16\nW[N, G, D] : i8\nS[N, G] : bf16\n"
        "Y[m, n] = sum[g, d](X[m, g, d] * (W[n, g, d] * S[n, g]))\n"
    )
    families = safe_families(search(normalise(program), limits=ALONE).families).ugraphs
    best, *_ = rank(families, H200, 8)
    (block,) = best.plan.ugraph.kernels
    (loop,) = [s for s in block.sections if s.loop is not None]
    (product,) = [n for n in loop.nodes if block.nodes[n].op == "matmul"]
    assert (loop.loop, loop.tile, block.nodes[product].reduced) == ("g", 1, ("d",))
    assert Tiling(program, block).is_dot(product)
    # Half the memory's rate at least: a sector of the scales is read once for 16 groups.
    assert best.estimate.time_us < 2 * lower_bound_us(program, H200) + H200.launch_us
