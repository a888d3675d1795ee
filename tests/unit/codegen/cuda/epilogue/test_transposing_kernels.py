"""A tile that is read along one axis and written along another: wide accesses on both sides."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_plans import cuda_plan, for_cuda, kernel_of

from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import run_kernels

COPY = """
X[3, 64, 128] : {dtype}
Y[a, c, b] = X[a, b, c]
"""
COPY_KERNEL = """
kernel turned {
  grid a by 1, b by 64, c by 64
  %0 = load X[a, b, c]
  store Y[a, c, b] = %0
}
"""
ADDED = """
X[3, 64, 128], Z[3, 128, 64] : {dtype}
Y[a, c, b] = X[a, b, c] + Z[a, c, b]
"""
ADDED_KERNEL = """
kernel added {
  grid a by 1, b by 64, c by 64
  %0 = load X[a, b, c]
  %1 = load Z[a, c, b]
  %2 = add %0, %1
  store Y[a, c, b] = %2
}
"""
CASES = {"copied": (COPY, COPY_KERNEL), "added": (ADDED, ADDED_KERNEL)}


@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("name", CASES)
def test_both_sides_are_wide_and_nothing_is_read_twice(name, dtype):
    text, kernel = CASES[name]
    plan = for_cuda(cuda_plan(text.format(dtype=dtype), kernel, 0), 4)
    made = kernel_of(plan)
    reads = [line for line in made.body.splitlines() if "(X +" in line or "X[" in line]
    assert len([r for r in reads if "//" not in r]) == 1
    wide = "uint4" if dtype == "f16" else "float4"
    assert f"*reinterpret_cast<{wide}*>(Y + " in made.body
    if cpp_compiler() is None:
        return
    program = plan.ugraph.program
    random = np.random.default_rng(0)
    kind = np.float16 if dtype == "f16" else np.float32
    arrays = {t.name: random.standard_normal(t.shape).astype(kind) for t in program.inputs}
    got = run_kernels(program, (made,), arrays)["Y"]
    want = arrays["X"].transpose(0, 2, 1) + (arrays["Z"] if "Z" in arrays else kind(0))
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
