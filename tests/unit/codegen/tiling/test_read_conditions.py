"""Concatenations in every spelling: each element is read where it is chosen, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from naive import naive_plan

from mirage_py.codegen.tiling.read_conditions import read_conditions
from mirage_py.frontend.torch import trace
from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.ugraph.ir.predicates import TRUE

BACKENDS = [
    ("triton", run_interpreted),
    pytest.param(
        "cuda",
        run_emulated,
        marks=pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler"),
    ),
]
X, Y, TABLE = torch.randn(4, 32), torch.randn(4, 16), torch.randn(4, 32)


def turned(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def halves(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    (a, b), (cos, sin) = x.chunk(2, -1), table.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


# Function, inputs, and how many elements it reads for each that it writes.
CASES = {
    "rotate_half": (lambda x, t: x * t.cos() + turned(x) * t.sin(), (X, TABLE), 3),
    "computed_halves": (halves, (X, TABLE), 4),
    "columns": (lambda x, y: torch.cat((x * 2, y + 1), 1), (X, Y), 1),
    "three": (lambda x, y: torch.cat((y, x * 2, y + 1), 1), (X, Y), 1),
    "rows": (lambda x, t: torch.cat((x.exp(), t), 0), (X, TABLE), 1),
    "stack": (lambda x, t: torch.stack((x, t * t)), (X, TABLE), 1),
    "padded": (lambda x: F.pad(x * 2, (8, 24)), (X,), 0.5),
    "nested": (lambda x, y: torch.cat((turned(x) + 1, y), 1), (X, Y), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_chosen_is_not_read(name):
    function, inputs, expected = CASES[name]
    program = trace(function, *inputs)
    block = naive_plan(program, {}).ugraph.kernels[0]
    conditions = read_conditions(block, program.tensors)
    read = 0.0
    for number, node in block.loads():
        places = np.meshgrid(*(np.arange(program.sizes[d]) for d in node.dims), indexing="ij")
        holds = conditions.get(number, TRUE).evaluate(dict(zip(node.dims, places, strict=True)))
        read += np.broadcast_to(holds, places[0].shape).sum()
    assert read == expected * program.outputs[0].tensor.elements


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("backend", "run"), BACKENDS)
def test_against_torch(backend, run, name):
    function, inputs, _ = CASES[name]
    program = trace(function, *inputs)
    plan = replace(naive_plan(program, {program.dims[0].name: 2}), backend=backend)
    found = run(plan, {t.name: x.numpy() for t, x in zip(program.inputs, inputs, strict=True)})
    (found,) = found.values()
    np.testing.assert_allclose(found, function(*inputs).numpy(), rtol=2e-5, atol=1e-6)


def test_accesses_of_16_bytes_stay_whole():
    """A boundary inside of one would make four accesses of it; both pieces are read then."""
    program = trace(lambda x, y: torch.cat((x[:, :30], y), 1), X, Y)
    block = naive_plan(program, {}).ugraph.kernels[0]
    runs = read_conditions(block, program.tensors)
    program = trace(lambda x, y: torch.where(torch.arange(32) < 30, x, y), X, TABLE)
    block = naive_plan(program, {}).ugraph.kernels[0]
    assert read_conditions(block, program.tensors) == {}
    # Here each piece is read in pairs or less anyway.
    assert len(runs) == 2
