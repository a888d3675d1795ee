"""Loads through tensor descriptors."""

from __future__ import annotations

from dataclasses import replace

import pytest
import several_kernels

from mirage_py.codegen.triton.module import TritonKernel, emit_triton
from mirage_py.frontend.spec import parse
from mirage_py.runtime.compile.compile import KernelSource, compile_kernel, compiled_handle
from mirage_py.runtime.cpu.triton_interpreter import check_interpreted
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan

PRODUCT = """
B = 96, D = 200, N = 136
X[B, D], W[{layout}] : f16
Y[b, n] = sum[d](X[b, d] * W[{index}])
"""

PRODUCT_KERNEL = """
kernel product {{
  grid n by 64, b by 64
  loop d by 64 {{
    %0 = load X[b, d]
    %1 = load W[{index}]
    %2 = matmul[d] %0, %1
    %3 = accum_sum %2
  }}
  store Y[b, n] = %3
}}
"""

ATTENTION = """
HEADS = 2, ROWS = 64, KEYS = 256, C = 64, E = 64
Q[HEADS, ROWS, C], K[HEADS, C, KEYS], V[HEADS, KEYS, E] : f16
let Z[h, q, s] = sum[c](Q[h, q, c] * K[h, c, s])
O[h, q, e] = sum[s](exp(Z[h, q, s]) * V[h, s, e]) / sum[s](exp(Z[h, q, s]))
"""

ATTENTION_KERNEL = """
kernel attention {
  grid q by 64, h by 1
  %0 = load Q[h, q, c]
  loop s by 64 {
    %1 = load K[h, c, s]
    %2 = matmul[c] %0, %1
    %3 = max[s] %2
    %4 = accum_max[shift] %3
    %5 = sub %2, %4
    %6 = exp %5
    %7 = sum[s] %6
    %8 = accum_rescaled[1] %7, %4
    %9 = load V[h, s, e]
    %10 = matmul[s] %6, %9
    %11 = accum_rescaled[1] %10, %4
  }
  %12 = div %11, %8
  store O[h, q, e] = %12
}
"""


def plan_of(spec: str, kernel: str, **changes: bool) -> Plan:
    graph = several_kernels.over(parse(spec), kernel)
    options = replace(LaunchConfig(4, (3,), descriptors=True), **changes)
    return Plan(graph, (options,))


def product(layout: str, index: str, **changes: bool) -> Plan:
    spec = PRODUCT.format(layout=layout, index=index)
    return plan_of(spec, PRODUCT_KERNEL.format(index=index), **changes)


PLANS = {
    "row-major": product("D, N", "d, n"),
    "transposed": product("N, D", "n, d"),
    "operands swapped": product("D, N", "d, n", reversed_axes=True),
    "attention": plan_of(ATTENTION, ATTENTION_KERNEL),
}


def emitted(plan: Plan) -> TritonKernel:
    (kernel,) = emit_triton(plan)
    return kernel


@pytest.mark.parametrize("name", PLANS)
def test_agrees_with_float64_in_the_interpreter(name: str) -> None:
    plan = PLANS[name]
    assert emitted(plan).text.tiles
    found = check_interpreted(plan.ugraph.program, plan, seed=1)
    assert found.passed, found.reason


@pytest.mark.parametrize("name", PLANS)
def test_the_copy_engine_feeds_the_products(name: str) -> None:
    source = KernelSource.of(emitted(PLANS[name]))
    ptx = compiled_handle(source, 90).asm["ptx"]
    assert "cp.async.bulk.tensor" in ptx
    assert "wgmma.mma_async" in ptx
    assert "cp.async.cg" not in ptx


@pytest.mark.parametrize("capability", [80, 100])
def test_compiles_elsewhere(capability: int) -> None:
    assert compile_kernel(emitted(PLANS["attention"]), capability).cubin_bytes > 0


def test_tiles_are_those_of_the_tensor() -> None:
    kernel = emitted(PLANS["attention"])
    assert kernel.text.tiles == {"K": (1, 64, 64), "V": (1, 64, 64)}
    text = kernel.text.source
    assert "K_desc.load([h, 0, s_start])" in text
    assert "Q_desc" not in text  # it is loaded once, outside of the loop
    assert "TensorDescriptor.from_tensor(K, [1, 64, 64])" in kernel.source


def test_parts_that_end_inside_a_tensor_are_not_fetched() -> None:
    """The engine gives zeros past the end of the tensor, not past the end of a part."""
    plan = several_kernels.plan("split_attention")
    flagged = replace(plan, options=tuple(replace(o, descriptors=True) for o in plan.options))
    assert [k.text.source for k in emit_triton(flagged)] == [
        k.text.source for k in emit_triton(plan)
    ]


def test_rows_that_the_engine_cannot_step_over_are_not_fetched() -> None:
    spec = PRODUCT.format(layout="D, N", index="d, n").replace("N = 136", "N = 130")
    plan = plan_of(spec, PRODUCT_KERNEL.format(index="d, n"))
    # 130 halves are no multiple of 16 bytes.
    assert set(emitted(plan).text.tiles) == {"X"}
