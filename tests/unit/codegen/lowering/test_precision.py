"""Where products are rounded to half, and what else reads them."""

from __future__ import annotations

import re

import numpy as np

from mirage_py.codegen.triton.module import emit_triton
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.text.text_form import parse_ugraph
from mirage_py.verify.evaluate.element_types import round_to

# The mean of a row leaves the product with the weights.
CENTRED = """
ugraph centred
dim b = 16
dim n = 16
dim d = 512
input X[16, 512] : f16
input G[512] : f16
input W[512, 16] : f16
output Y[16, 16] : f32
program {
  %0 = load X[b, d]
  %1 = sum[d] %0
  %2 = size d
  %3 = div %1, %2
  %4 = sub %0, %3
  %5 = load G[d]
  %6 = mul %4, %5
  %7 = load W[d, n]
  %8 = matmul[d] %6, %7
  return Y[b, n] = %8
}
kernel fused {
  grid b by 16, n by 16
  loop d by 64 {
    %0 = load X[b, d]
    %1 = sum[d] %0
    %2 = accum_sum %1
    %3 = load G[d]
    %4 = load W[d, n]
    %5 = mul %3, %4
    %6 = matmul[d] %0, %5
    %7 = accum_sum %6
    %8 = sum[d] %5
    %9 = accum_sum %8
  }
  %10 = size d
  %11 = div %2, %10
  %12 = mul %11, %9
  %13 = sub %7, %12
  store Y[b, n] = %13
}
"""


def test_sums_take_a_product_as_the_tensor_cores_take_it():
    plan = Plan(parse_ugraph(CENTRED), (LaunchConfig(4, (2,)),))
    (kernel,) = emit_triton(plan)
    (product,) = re.findall(r"tl\.dot\(x_tile, (\w+),", kernel.source)
    assert f"{product} = g_tile[:, None] * " in kernel.source  # in half precision, as g is
    assert f" + {product}_f32\n" in kernel.source


def test_an_offset_of_the_rows_cancels():
    plan = Plan(parse_ugraph(CENTRED), (LaunchConfig(4, (2,)),))
    rng = np.random.default_rng(4)
    arrays = {
        "X": 64 + rng.normal(size=(16, 512)),
        "G": 1 + 0.1 * rng.normal(size=512),
        "W": rng.normal(size=(512, 16)) / 512**0.5,
    }
    arrays = {t.name: round_to(arrays[t.name], t.dtype) for t in plan.ugraph.program.inputs}
    centred = arrays["X"] - arrays["X"].mean(1, keepdims=True)
    expected = (centred * arrays["G"]) @ arrays["W"]
    error = np.abs(run_interpreted(plan, arrays)["Y"] - expected).max()
    assert error < 2e-3 * np.sqrt((expected**2).mean())
