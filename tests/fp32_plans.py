"""A matmul of float32 as a plan, its matmul computed in each way."""

from __future__ import annotations

import several_kernels

from mirage_py.frontend.spec import parse
from mirage_py.ugraph.ir.dtypes import Fp32Precision
from mirage_py.ugraph.ir.launch_choices import Precision
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program

KERNEL = """
kernel product {
  grid b by 64, n by 64
  loop d by 32 {
    %0 = load X[b, d]
    %1 = load W[d, n]
    %2 = matmul[d] %0, %1
    %3 = accum_sum %2
  }
  store Y[b, n] = %3
}
"""


def matmul_program(
    rows: int = 64, terms: int = 128, columns: int = 64, precision: str = "ieee", dtype: str = "f32"
) -> Program:
    """Y = X W."""
    sizes = f"B = {rows}, D = {terms}, N = {columns}"
    text = f"{sizes}\nX[B, D], W[D, N] : {dtype}\nY[b, n] = sum[d](X[b, d] * W[d, n])"
    return parse(text).held_to(Fp32Precision(precision))


def matmul_plan(program: Program, precision: Precision | None, backend: str = "triton") -> Plan:
    """One kernel with four warps."""
    config = LaunchConfig(4, (2,), precision=precision)
    return Plan(several_kernels.over(program, KERNEL), (config,), backend)
