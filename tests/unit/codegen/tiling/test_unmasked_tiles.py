"""Loops under a mask visit the tiles that the mask leaves alive, and every one of those."""

from __future__ import annotations

import numpy as np
import pytest
from families import stabilize

from mirage_py.codegen.lowering.lowering import lowered
from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.codegen.tiling.unmasked_tiles import (
    UnmaskedRange,
    always_iterates,
    mean_iterations,
    unmasked_below,
    unmasked_range,
)
from mirage_py.codegen.triton.module import emit_triton
from mirage_py.frontend.spec import parse
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import Predicate
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, Section, UGraph
from mirage_py.ugraph.rewrite.degrees import LOWEST_SHIFT

T, S = ix.dim("t"), ix.dim("s")
SEEN = {
    "s <= t": ix.compare("le", S, T),
    "t >= s": ix.compare("ge", T, S),
    "s < t + 1": ix.compare("lt", S, T + 1),
    "t - 20 < s <= t": Predicate("and", args=(ix.compare("lt", T - 20, S), ix.compare("le", S, T))),
    "2 * s <= t": ix.compare("le", S * 2, T),
    "t <= 3 * s + 1": ix.compare("le", T, S * 3 + 1),
    "t - s == 0": ix.compare("eq", T - S, 0),
    "s <= 9": ix.compare("le", S, 9),
    "not s > t": Predicate("not", args=(ix.compare("gt", S, T),)),
    "s % 7 <= t": ix.compare("le", S % 7, T),
    "s <= t or s < 5": Predicate("or", args=(ix.compare("le", S, T), ix.compare("lt", S, 5))),
}


def masked_attention(seen: Predicate, tiles: tuple[int, int], accumulator: str = "mask") -> Plan:
    """exp(QK) under a mask, times V, over its sum, for 50 queries and 70 keys."""
    program = parse(
        "T = 50, S = 70, D = 16\nQ[T, D], K[S, D], V[S, D] : f32\n"
        "let a[t, s] = where(s <= t, exp(sum[d](Q[t, d] * K[s, d])), 0)\n"
        "O[t, e] = sum[s](a[t, s] * V[s, e]) / sum[s](a[t, s])\n"
    )
    (e,) = (d for d in program.nodes[-1].dims if d != "t")

    def load(tensor: str, *dims: str) -> Node:
        return Node("load", (), Access(tensor, tuple(ix.dim(d) for d in dims)), dims)

    weight = 4 if accumulator == "mask" else 3
    nodes = (
        load("Q", "t", "d"),
        load("K", "s", "d"),
        Node("matmul", (0, 1), ("d",), ("t", "s")),
        Node("exp", (2,), None, ("t", "s")),
        Node("mask", (), seen, seen.dims()),
        Node("mul", (weight, 3), None, ("t", "s")),
        Node("sum", (5,), ("s",), ("t",)),
        Node("accum_sum", (6,), None, ("t",)),
        load("V", "s", e),
        Node("matmul", (5, 8), ("s",), ("t", e)),
        Node("accum_sum", (9,), None, ("t", e)),
        Node("div", (10, 7), None, ("t", e)),
        Node("store", (11,), Access("O", (T, ix.dim(e))), ("t", e)),
    )
    sections = (Section((0,)), Section(tuple(range(1, 11)), "s", tiles[1]), Section((11, 12)))
    block = BlockGraph("masked", (GridAxis("t", tiles[0]),), nodes, sections)
    return Plan(UGraph(program, (block,)), (LaunchConfig(4, (2,)),))


def tiling_of(plan: Plan) -> Tiling:
    (block,) = plan.ugraph.kernels
    assert isinstance(block, BlockGraph)
    return Tiling(plan.ugraph.scope, block)


def alive(seen: Predicate, tiles: tuple[int, int]) -> np.ndarray:
    """Which tiles [block, iteration] have a point where the mask holds."""
    grids = [-(-size // tile) for size, tile in zip((50, 70), tiles, strict=True)]
    t, s = np.meshgrid(np.arange(50), np.arange(70), indexing="ij")
    holds = np.broadcast_to(seen.evaluate({"t": t, "s": s}), t.shape)
    found = np.zeros(grids, bool)
    np.logical_or.at(found, (t // tiles[0], s // tiles[1]), holds)
    return found


@pytest.mark.parametrize("tiles", [(16, 16), (16, 32), (32, 16), (1, 16)])
@pytest.mark.parametrize("name", SEEN)
def test_no_tile_that_is_alive_is_left_out(name, tiles):
    tiling = tiling_of(masked_attention(SEEN[name], tiles))
    found = unmasked_range(tiling, 1)
    for block, row in enumerate(alive(SEEN[name], tiles)):
        first = tiles[0] * block
        ends = {"t": (first, first + tiles[0] - 1)}
        low = max([0, *(b.value(ends) for b in found.firsts)]) // tiles[1]
        high = -(-min([70, *(b.value(ends) for b in found.stops)]) // tiles[1])
        visited = [n for n in range(len(row)) if low <= n < high]
        assert set(np.flatnonzero(row)) <= set(visited)


UPPER = {"s <= t", "t >= s", "s < t + 1", "2 * s <= t", "s <= 9", "not s > t"}


@pytest.mark.parametrize("rows", [16, 1])
@pytest.mark.parametrize("name", SEEN)
def test_where_masks_hold_all_over(name, rows):
    """Below the bound everywhere, and right above it not everywhere."""
    found = unmasked_below(tiling_of(masked_attention(SEEN[name], (rows, 16))), 1)
    assert len(found) == (name in UPPER)
    for bound in found:
        for first in range(0, 50, rows):
            t = np.arange(first, first + rows)[:, None]
            stop = bound.value({"t": (first, first + rows - 1)})
            s = np.arange(max(stop, 0) + 1)
            holds = np.broadcast_to(SEEN[name].evaluate({"t": t, "s": s}), (rows, s.size)).all(0)
            assert holds[: max(stop, 0)].all()
            assert stop < 0 or not holds[stop]


@pytest.mark.parametrize("tiles", [(16, 16), (16, 32), (1, 16)])
@pytest.mark.parametrize("name", SEEN)
def test_a_loop_that_iterates_in_every_block(name, tiles):
    tiling = tiling_of(masked_attention(SEEN[name], tiles))
    if alive(SEEN[name], tiles).any(1).all():
        assert always_iterates(tiling, 1)
    assert not always_iterates(tiling, 0)


def test_a_loop_that_a_mask_leaves_empty_somewhere():
    late = Predicate("and", args=(ix.compare("ge", T, 16), ix.compare("le", S, T - 16)))
    assert not always_iterates(tiling_of(masked_attention(late, (16, 16))), 1)


@pytest.mark.parametrize("name", ["s <= t", "t - 20 < s <= t", "s < t + 1", "not s > t"])
def test_only_tiles_at_the_edge_may_be_dead(name):
    tiles = (16, 16)
    tiling = tiling_of(masked_attention(SEEN[name], tiles))
    count = int(alive(SEEN[name], tiles).sum())
    assert mean_iterations(tiling, 1) * tiling.grid_blocks == count
    assert mean_iterations(tiling, 0) == 1.0


@pytest.mark.parametrize("name", ["s % 7 <= t", "s <= t or s < 5"])
def test_what_is_no_interval_is_visited_whole(name):
    assert not unmasked_range(tiling_of(masked_attention(SEEN[name], (16, 16))), 1)


def test_a_mask_that_does_not_reach_an_accumulator_empties_nothing():
    plan = masked_attention(SEEN["s <= t"], (16, 16), accumulator="none")
    assert unmasked_range(tiling_of(plan), 1) == UnmaskedRange()


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("tiles", [(16, 16), (32, 16), (16, 64)])
def test_the_result_is_that_of_the_whole_loop(tiles, stable):
    plan = masked_attention(SEEN["s <= t"], tiles)
    if stable:
        ugraph = stabilize(plan.ugraph)
        assert any(n.op == "accum_max" for n in ugraph.kernels[0].nodes)
        plan = Plan(ugraph, plan.options)
    assert unmasked_range(tiling_of(plan), 1, LOWEST_SHIFT)
    (kernel,) = emit_triton(plan)
    assert "t_low" in kernel.source
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=shape) for shape in ((50, 16), (70, 16), (70, 16)))
    weights = np.where(
        SEEN["s <= t"].evaluate({"t": np.arange(50)[:, None], "s": np.arange(70)}),
        np.exp(q @ k.T),
        0,
    )
    want = weights @ v / weights.sum(1, keepdims=True)
    got = run_interpreted(plan, {"Q": q, "K": k, "V": v})["O"]
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_a_running_maximum_that_would_rise_is_not_skipped():
    """Where masked scores are no lower than any maximum the tile still has its say; of a finite
    constant that is not known before it is lowered.
    """
    plan = masked_attention(SEEN["s <= t"], (16, 16))
    block = stabilize(plan.ugraph).kernels[0]
    raised = tuple(
        Node("const", (), 0.0, n.dims) if n.op == "const" and n.attr == LOWEST_SHIFT else n
        for n in block.nodes
    )
    other = BlockGraph("raised", block.grid, raised, block.sections)
    assert unmasked_range(Tiling(plan.ugraph.scope, block), 1, LOWEST_SHIFT)
    assert not unmasked_range(Tiling(plan.ugraph.scope, other), 1, LOWEST_SHIFT)
    assert not unmasked_range(Tiling(plan.ugraph.scope, block), 1)
    hidden = lowered(stabilize(plan.ugraph), [block]).blocks[0].block
    assert unmasked_range(Tiling(plan.ugraph.scope, hidden), 1)
