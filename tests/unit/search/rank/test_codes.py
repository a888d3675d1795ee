"""Weights of four and eight bits: what CUDA kernels make of codes in registers is cheap, and the
model knows it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from several_kernels import over

from mirage_py.codegen.cuda.kernel.module import emit_cuda, kernel_plans
from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.frontend.spec import parse
from mirage_py.search.model.footprint import is_warp_group_dot
from mirage_py.search.rank.instance import Instance
from mirage_py.search.rank.instantiate import rank
from mirage_py.search.rank.neighbours import neighbours
from mirage_py.search.rank.plan_model import PlanModel
from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.targets import H200
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

SIGNED = (
    """
    B = 16, K = 4096, N = 14336
    X[B, K] : bf16, W[N, K] : i8
    Y[b, n] : bf16 = sum[k](X[b, k] * W[n, k])
    """,
    """
    kernel codes {
      grid b by 16, n by 64
      loop k by 256 {
        %0 = load X[b, k]
        %1 = load W[n, k]
        %2 = matmul[k] %0, %1 : [b, n]
        %3 = accum_sum %2 : [b, n]
      }
      store Y[b, n] = %3
    }
    """,
)
NIBBLES = (
    """
    B = 16, J = 2048, N = 14336
    X[B, 2 * J] : bf16, W[N, J] : u8
    index c < 2
    Y[b, n] : bf16 = sum[j, c](X[b, 2 * j + c]
        * (where(c < 1, bit_and(W[n, j], 15), shift_right(W[n, j], 4)) - 8))
    """,
    """
    kernel codes {
      grid b by 16, n by 64
      %0 = mask (c < 1)
      %1 = const 15.0
      %2 = const 4.0
      %3 = const 8.0
      loop j by 256 {
        %4 = load X[b, j * 2 + c]
        %5 = load W[n, j]
        %6 = bit_and %5, %1 : [n, j]
        %7 = shift_right %5, %2 : [n, j]
        %8 = where %0, %6, %7 : [n, j, c]
        %9 = sub %8, %3 : [n, j, c]
        %10 = matmul[j, c] %4, %9 : [b, n]
        %11 = accum_sum %10 : [b, n]
      }
      store Y[b, n] = %11
    }
    """,
)


def family(name: str, rows: int = 16) -> UGraph:
    spec, kernel = {"signed": SIGNED, "nibbles": NIBBLES}[name]
    graph = over(parse(spec, sizes={"B": rows}), kernel)
    (block,) = graph.kernels
    assert isinstance(block, BlockGraph)
    grid = tuple(replace(axis, tile=None) for axis in block.grid)
    sections = tuple(replace(section, tile=None) for section in block.sections)
    return replace(graph, kernels=(replace(block, grid=grid, sections=sections),))


def first_plan(name: str, rows: int, backend: str) -> Instance:
    return rank([family(name, rows)], H200, 4, "cuda" if backend == "cuda" else "triton")[0]


@pytest.mark.parametrize("rows", [1, 16])
def test_the_first_plan_waits_for_little_but_memory(rows: int):
    moved_us = 14336 * 2048 / H200.dram_bytes_per_us
    best = first_plan("nibbles", rows, "cuda")
    (block,), (options,) = best.plan.ugraph.kernels, best.plan.options
    assert isinstance(block, BlockGraph)
    # Outputs are rows of tensor cores, each block of them in one piece of all SMs at once.
    assert options.reversed_axes
    assert options.evict_first == ("W",)
    assert block.grid_tiles["n"] >= 64
    assert best.estimate.time_us < moved_us + 8
    # No code of a nibble is cheap in Triton.
    assert first_plan("nibbles", rows, "triton").estimate.time_us > 1.5 * best.estimate.time_us


@pytest.mark.parametrize("name", ["signed", "nibbles"])
def test_codes_are_multiplied_by_single_warps_that_share_out_the_inner_positions(name: str):
    best = first_plan(name, 16, "cuda")
    (block,), (options,) = best.plan.ugraph.kernels, best.plan.options
    assert isinstance(block, BlockGraph)
    tiling = Tiling(best.plan.ugraph.scope, block)
    (dot,) = TiledKernel(tiling, backend="cuda").dots.values()
    (loop,) = (s for s in block.sections if s.loop)
    assert dot.codes_bytes == block.grid_tiles["n"] * (loop.tile or 1)
    assert dot.sides[dot.codes_side] == block.grid_tiles["n"]
    assert dot.codes_shares == (loop.tile or 1) // 64
    # Each warp has a share of its own, so that none waits for another in the loop.
    assert options.num_warps <= dot.codes_shares
    assert max(options.num_stages) <= 4
    (kernel,) = kernel_plans(best.plan)
    assert len(kernel.warp_tiles) == 1
    assert not is_warp_group_dot(dot, options, H200)
    # Triton has a matmul of converted numbers.
    (other,) = TiledKernel(tiling).dots.values()
    assert not other.codes_bytes


def test_buffers_of_codes_take_what_the_kernel_takes():
    for name in ("signed", "nibbles"):
        plan = first_plan(name, 16, "cuda").plan
        (kernel,) = emit_cuda(plan)
        (load,) = PlanModel(plan, H200).loads
        need = load.footprint.smem_bytes  # type: ignore[union-attr]
        assert kernel.smem_bytes <= need <= kernel.smem_bytes + 4096


def test_both_forms_of_nibbles_are_ranked_and_the_one_with_fewer_instructions_is_first():
    ranked = rank([family("nibbles")], H200, 8, "cuda")
    forms = [i.plan.options[0].excess_codes for i in ranked]
    assert forms[0]
    assert not all(forms)
    plain = next(i for i in ranked if not i.plan.options[0].excess_codes)
    assert ranked[0].estimate.time_us <= plain.estimate.time_us
    others = {p.options[0].excess_codes for p in neighbours(plain.plan, H200)}
    assert True in others


@pytest.mark.parametrize("backend", ["cuda", "triton"])
def test_bytes_have_one_form(backend: str):
    plan = first_plan("signed", 16, backend).plan
    assert not plan.options[0].excess_codes
    assert not any(p.options[0].excess_codes for p in neighbours(plan, H200))
