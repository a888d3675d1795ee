"""Offsets beyond 2^31 elements: positions of 64 bits, and only where they are needed."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.checks.differential_cases import one_kernel
from mirage_py.codegen.tiling.valid_sizes import MAX_INT32
from mirage_py.codegen.triton.module import emit_triton
from mirage_py.runtime.compile.compile import compile_kernel
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.dtypes import F16, F32
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.text.text_form import parse_ugraph


def rows(m: int, n: int, strides: tuple[int, int] | None) -> Program:
    b = ProgramBuilder("rows")
    b.dim("m", m)
    b.dim("n", n)
    b.input("X", (m, n), F16, strides=strides)
    b.output("Y", b.sum(b.load("X", "mn"), "n"), "m", F32)
    return b.build()


@pytest.mark.parametrize(
    ("m", "n", "strides", "wide"),
    [
        (4, 8, None, False),
        (1 << 16, 1 << 16, None, True),
        (1 << 16, 1 << 15, None, False),
        # Few elements far apart: a view of a large tensor.
        (3, 8, (1 << 30, 1), True),
        (2, 8, (1 << 30, 1), False),
        (8, 3, (1, 1 << 30), True),
    ],
)
def test_positions_are_wide_where_offsets_are(m, n, strides, wide):
    plan = one_kernel(rows(m, n, strides), {"m": 4})
    (kernel,) = emit_triton(plan)
    lines = [s.strip() for s in kernel.source.splitlines()]
    positions = [s for s in lines if s.startswith(("m = ", "n = "))]
    assert len(positions) == 2
    assert all(("int64" in s) == wide for s in positions)


LOOP = """
ugraph far
dim m = 4
dim n = 6
input X[4, 6] : f32 strides ({m}, {n})
output Y[4] : f32
program {{
  %0 = load X[m, n]
  %1 = sum[n] %0
  return Y[m] = %1
}}
kernel far_kernel {{
  grid m by {tm}
  loop n by {tn} {{
    %0 = load X[m, n]
    %1 = sum[n] %0
    %2 = accum_sum %1
  }}
  store Y[m] = %2
}}
"""


@pytest.mark.parametrize(("tm", "tn"), [(1, 1), (2, 4), (4, 1), (1, 4)])
def test_loops_are_wide_too(tm, tn, monkeypatch):
    text = LOOP.format(m=1, n=1 << 29, tm=tm, tn=tn)
    (kernel,) = emit_triton(Plan(parse_ugraph(text), (LaunchConfig(),)))
    start = next(s for s in kernel.source.splitlines() if s.strip().startswith("n = n_start") or
                 s.strip().startswith("n = tl.cast"))  # fmt: skip
    assert "int64" in start
    compile_kernel(kernel, 90)
    # The same text over little memory.
    monkeypatch.setattr("mirage_py.codegen.triton.kernel.MAX_INT32", 3)
    plan = Plan(parse_ugraph(LOOP.format(m=1, n=8, tm=tm, tn=tn)), (LaunchConfig(),))
    assert "int64" in emit_triton(plan)[0].source
    x = np.arange(24.0).reshape(4, 6)
    np.testing.assert_array_equal(run_interpreted(plan, {"X": x})["Y"], x.sum(1))
    assert MAX_INT32 == 2**31 - 1
