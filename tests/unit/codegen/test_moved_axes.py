"""Kernels that read axes backwards or from the middle, and that write truth values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from naive import naive_plan

from mirage_py.frontend.torch import trace
from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted

BACKENDS = [
    ("triton", run_interpreted),
    pytest.param(
        "cuda",
        run_emulated,
        marks=pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler"),
    ),
]
FUNCTIONS = {
    "flip": lambda x: x.flip(-1) * 2,
    "flip_rows": lambda x: x.flip(0) + x,
    "roll": lambda x: x.roll((3, -5), (0, 1)) * 2,
    "truth": lambda x: (x > 0.3, x.isnan(), x.isfinite() & (x < 1)),
    "rounded": lambda x: (torch.round(x * 8) / 8, x.trunc(), torch.remainder(x, 0.3)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("backend", "run"), BACKENDS)
def test_against_torch(backend, run, name):
    torch.manual_seed(0)
    x = torch.randn(9, 37)
    x[2, 5], x[3, 1], x[4, 0] = torch.nan, torch.inf, -torch.inf
    program = trace(FUNCTIONS[name], x)
    rows = program.dims[0].name
    plan = replace(naive_plan(program, {rows: 4}), backend=backend)
    found = run(plan, {program.inputs[0].name: x.numpy()})
    want = FUNCTIONS[name](x)
    wanted = want if isinstance(want, tuple) else (want,)
    for output, expected in zip(program.outputs, wanted, strict=True):
        np.testing.assert_allclose(found[output.tensor.name], expected.numpy(), rtol=1e-5)
