"""Float8 matmuls by wgmma: scales of blocks in slices of the tile, scales in the epilogue, and what
is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from cuda_plans import for_cuda, kernel_of

from mirage_py.codegen.cuda.kernel.module import emit_cuda, kernel_plans
from mirage_py.errors import ScheduleError
from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import normalise
from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.search.enumerate.search import search
from mirage_py.search.rank.instantiate import rank
from mirage_py.targets import H200
from mirage_py.ugraph.ir.dtypes import F8E4M3
from mirage_py.ugraph.ir.launch_choices import Arch, BlockOrder, StoreMode
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

# Scales of 1 x 128 activations and of 128 x 128 weights; those of activations along M or along K.
BLOCKS = """M = 128, G = 2, N = 256, R = 128
X[M, G * R], W[N, G * R] : f8e4m3, A[AXES], S[N // 128, G] : f32
index r < R
Y[m, n] : bf16 = sum[g, r](X[m, g * 128 + r] * W[n, g * 128 + r] * A[PLACE] * S[n // 128, g])
"""
ALONG_M = BLOCKS.replace("AXES", "G, M").replace("PLACE", "g, m")
ALONG_K = BLOCKS.replace("AXES", "M, G").replace("PLACE", "m, g")
ROWS = """M = 64, K = 256, N = 64
X[M, K], W[N, K] : f8e4m3, A[M], S[N] : f32
Y[m, n] : bf16 = sum[k](X[m, k] * W[n, k]) * A[m] * S[n]
"""
# [K, N]: what wgmma reads of halves, and not of float8.
TURNED = ROWS.replace("W[N, K]", "W[K, N]").replace("W[n, k]", "W[k, n]")
CODES = [c for c in range(256) if c & 127 != 127]

needs_compiler = pytest.mark.skipif(cpp_compiler() is None, reason="needs a C++ compiler")


@functools.cache
def family(text: str) -> UGraph:
    """The µGraph of one kernel that loops over K and multiplies what it loads."""
    for found in search(normalise(parse(text, name="float8"))).families:
        (block, *more) = found.ugraph.kernels
        if more or not isinstance(block, BlockGraph) or any("part" in a.dim for a in block.grid):
            continue
        matmuls = [n for n in block.nodes if n.op == "matmul"]
        are_loads = all(block.nodes[a].op == "load" for n in matmuls for a in n.args)
        inside = "r" if "index r" in text else "k"
        loop = [s.loop for s in block.sections if s.loop]
        if (
            loop == ["g" if inside == "r" else "k"]
            and are_loads
            and matmuls[0].reduced == (inside,)
        ):
            return found.ugraph
    raise AssertionError("not found")


def plan(text: str, m: int, n: int, warps: int = 4, **options: Any) -> Plan:
    graph = family(text)
    (block,) = graph.kernels
    assert isinstance(block, BlockGraph)
    step = 128 if "index r" not in text else 1
    tiled = replace(
        block,
        grid=tuple(replace(a, tile={"m": m, "n": n}[a.dim]) for a in block.grid),
        sections=tuple(s if s.loop is None else replace(s, tile=step) for s in block.sections),
    )
    chosen = {"producer_warps": True, "stores": StoreMode.LANES, **options}
    config = LaunchConfig(warps, (2,), arch=Arch.SM_90A, **chosen)
    return Plan(replace(graph, kernels=(tiled,)), (config,), "cuda")


def arrays_of(given: Plan) -> dict[str, np.ndarray[Any, Any]]:
    draw = np.random.default_rng(0)
    found = {}
    for tensor in given.ugraph.program.inputs:
        if tensor.dtype == F8E4M3:  # every finite number
            codes = draw.permutation(np.resize(np.array(CODES, np.uint8), tensor.shape).ravel())
            numbers = torch.from_numpy(codes).view(torch.float8_e4m3fn).double().numpy()
            found[tensor.name] = numbers.reshape(tensor.shape)
        else:
            found[tensor.name] = draw.uniform(0.5, 1.5, tensor.shape).astype(np.float32)
    return found


def wanted(x: Mapping[str, np.ndarray[Any, Any]], text: str) -> np.ndarray[Any, Any]:
    if text == ROWS:
        return np.asarray(x["X"] @ x["W"].T * x["A"][:, None] * x["S"])
    of_rows = x["A"] if text == ALONG_K else x["A"].T
    wide = [np.repeat(of_rows, 128, 1), np.repeat(np.repeat(x["S"], 128, 0), 128, 1)]
    return np.asarray((x["X"] * wide[0]) @ (x["W"] * wide[1]).T)


@needs_compiler
@pytest.mark.parametrize(
    ("text", "tiles", "options"),
    [
        (ALONG_M, (128, 128), {}),
        # Columns of two blocks of the weights in slices, in work tile after work tile.
        (ALONG_K, (64, 256), {"persistent_blocks": 1}),
        (ALONG_M, (128, 128, 8), {"persistent_blocks": 1}),
        (ROWS, (64, 64), {}),
    ],
    ids=["slices of rows", "slices of columns", "two groups", "scales of rows"],
)
def test_every_number(text: str, tiles: tuple[int, ...], options: dict[str, Any]):
    given = plan(text, *tiles, **options)
    arrays = arrays_of(given)
    got, want = run_emulated(given, arrays)["Y"], wanted(arrays, text)
    assert np.abs(got - want).max() < 2**-8 * np.abs(want).max()


def test_scales_of_blocks_take_one_multiplication_an_element():
    """The text: what DeepGEMM calls two-level accumulation, in slices of one set of registers."""
    given = plan(ALONG_M, 128, 128)
    (planned,) = kernel_plans(given)
    (promotion,) = planned.promotions.values()
    assert (len(promotion.slices), promotion.layout.register_count) == (1, 64)
    # A scale of a block of weights is one number for the tile, one of a row comes by TMA.
    assert len(planned.pipeline.loops[0]) == 3
    body = kernel_of(given).body
    assert "S[(n_start / 128) * 2 + g_start]" in body
    assert body.count("wgmma_m64n128k32_f8e4m3_ss_kk(") == 2
    # The stage is free before the last slice is added.
    assert body.rindex("mbarrier_arrive(") < body.rindex("+= mul6;")


def test_the_text_of_a_kernel_with_scales_of_blocks(golden) -> None:  # type: ignore[no-untyped-def]
    golden.check(kernel_of(plan(ALONG_M, 128, 128)).body, "cuda/float8_blocks.cu.txt")


def test_scales_that_tma_cannot_reach_do_not_keep_it_from_the_operands():
    (planned,) = kernel_plans(plan(ALONG_K, 128, 128))
    assert len(planned.pipeline.loops[0]) == 2
    assert planned.pipeline.roles.has_producer


@pytest.mark.parametrize(
    ("given", "options", "why"),
    [
        (TURNED, {}, r"whose contiguous axis is the summed one\n.*store the weights as \[N, K\]"),
        (ROWS, {"arch": Arch.SM_80}, "goes by wgmma alone"),
    ],
)
def test_what_wgmma_does_not_take_is_refused(given: str, options: dict[str, Any], why: str):
    refused = plan(given, 64, 64)
    config = replace(refused.options[0], **options)
    with pytest.raises(ScheduleError, match=why):
        emit_cuda(replace(refused, options=(config,)))


def test_the_search_puts_it_first():
    text = ALONG_M.replace("M = 128, G = 2, N = 256", "M = 4096, G = 32, N = 4096")
    families = [f.ugraph for f in search(normalise(parse(text, name="float8"))).families]
    best = rank(families, H200, 2, backend="cuda")[0].plan
    (planned,) = kernel_plans(for_cuda(best, arch="sm_90a"))
    (promotion,) = planned.promotions.values()
    assert {a.dim: a.tile for a in planned.facts.block.grid} == {"m": 256, "n": 128}
    assert len(promotion.slices) == 1
    assert planned.pipeline.persistent_blocks == H200.sms
    assert planned.options.block_order is BlockOrder.GROUPED
