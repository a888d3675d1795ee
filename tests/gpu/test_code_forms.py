"""Codes of four bits on the GPU, in each form: whole numbers are exact."""

from __future__ import annotations

import pytest
import torch
from cuda_plans import cuda_plan

from mirage_py.runtime.launch.launch import PlanRunner

pytestmark = pytest.mark.gpu

ROWS, OUTPUTS, GROUPS, GROUP = 16, 64, 8, 128
LOW, HIGH = "bit_and(W[n, 64 * g + j], 15)", "shift_right(W[n, 64 * g + j], 4)"
PROGRAM = f"""
B = {ROWS}, G = {GROUPS}, J = 64, N = {OUTPUTS}
X[B, 2 * G * J], S[N, G] : bf16, W[N, G * J] : u8
index j < J, c < 2
let code[n, g, j, c] = where(c < 1, FIRST, SECOND) - 8
Y[b, n] : f32 = sum[g, j, c](X[b, 128 * g + 2 * j + c] * code[n, g, j, c] * S[n, g])
"""
KERNEL = """
kernel codes {
  grid n by 32, b by 16
  %0 = mask (c < 1)
  %1 = const 15.0
  %2 = const 4.0
  %3 = const 8.0
  loop g by 4 {
    %4 = load X[b, g * 128 + j * 2 + c]
    %5 = load S[n, g]
    %6 = load W[n, g * 64 + j]
    %7 = bit_and %6, %1 : [n, g, j]
    %8 = shift_right %6, %2 : [n, g, j]
    %9 = where %0, NIBBLES : [n, g, j, c]
    %10 = sub %9, %3 : [n, g, j, c]
    %11 = mul %5, %10 : [n, g, j, c]
    %12 = matmul[g, j, c] %4, %11 : [b, n]
    %13 = accum_sum %12 : [b, n]
  }
  store Y[b, n] = %13
}
"""


@pytest.mark.parametrize("high_first", [False, True], ids=["low", "high"])
@pytest.mark.parametrize("form", ["", "excess"])
def test_whole_numbers_are_exact(form: str, high_first: bool):
    texts, nibbles = ((HIGH, LOW), "%8, %7") if high_first else ((LOW, HIGH), "%7, %8")
    program = PROGRAM.replace("FIRST", texts[0]).replace("SECOND", texts[1])
    plan = cuda_plan(program, KERNEL.replace("NIBBLES", nibbles), 3, codes=form)
    torch.manual_seed(1)
    columns = GROUPS * GROUP
    x = torch.randint(-8, 9, (ROWS, columns), device="cuda").bfloat16()
    w = torch.randint(0, 256, (OUTPUTS, columns // 2), dtype=torch.uint8, device="cuda")
    s = torch.randint(1, 5, (OUTPUTS, GROUPS), device="cuda").bfloat16()
    pairs = (w >> 4, w & 15) if high_first else (w & 15, w >> 4)
    codes = torch.stack(pairs, -1).view(OUTPUTS, GROUPS, GROUP).double() - 8
    wanted = x.double() @ (codes * s.double()[..., None]).view(OUTPUTS, columns).t()
    named = {"X": x, "W": w, "S": s}
    found = PlanRunner(plan)(*(named[t.name] for t in plan.ugraph.program.inputs))
    assert isinstance(found, torch.Tensor)
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=0)
