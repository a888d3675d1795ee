"""µGraphs of several kernels on the GPU: partial sums, atomic additions, library products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import several_kernels
import torch

from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.dtypes import dtype as named

pytestmark = pytest.mark.gpu


def inputs_of(name: str) -> tuple[list[torch.Tensor], dict[str, np.ndarray]]:
    """Random half-precision tensors, and what the program makes of them in float64."""
    draw = np.random.default_rng(0)
    program = several_kernels.program(name)
    tensors = [
        torch.from_numpy(draw.normal(size=t.shape) / 4).to("cuda", torch.float16)
        for t in program.inputs
    ]
    arrays = {
        t.name: x.double().cpu().numpy() for t, x in zip(program.inputs, tensors, strict=True)
    }
    return tensors, evaluate_program(program, arrays, FloatMeaning())


def close(got: torch.Tensor, want: np.ndarray) -> bool:
    error = np.linalg.norm(got.double().cpu().numpy() - want)
    return bool(error < 3e-3 * np.linalg.norm(want))


@pytest.mark.parametrize("name", several_kernels.NAMES)
def test_agrees_with_float64(name):
    tensors, wanted = inputs_of(name)
    outputs = PlanRunner(several_kernels.plan(name)).run_poisoned(*tensors)
    for got, want in zip(outputs, wanted.values(), strict=True):
        assert close(got, want)


@pytest.mark.parametrize("name", several_kernels.NAMES)
def test_replays_of_a_graph_start_from_zero(name):
    tensors, wanted = inputs_of(name)
    runner = PlanRunner(several_kernels.plan(name))
    runner.warmup()
    outputs = runner.run_poisoned(*tensors)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        runner.run_into(tensors, outputs)
    for _ in range(3):
        for out in outputs:
            out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        for got, want in zip(outputs, wanted.values(), strict=True):
            assert close(got, want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_additions_in_every_type(dtype):
    """Rounded after each addition, so that only the size of the error is known."""
    plan = several_kernels.plan("split_matmul_added")
    program = plan.ugraph.program
    (output,) = program.outputs
    narrow = replace(output, tensor=replace(output.tensor, dtype=named(str(dtype))))
    graph = replace(plan.ugraph, program=replace(program, outputs=(narrow,)))
    tensors, wanted = inputs_of("split_matmul_added")
    (got,) = PlanRunner(replace(plan, ugraph=graph)).run_poisoned(*tensors)
    assert got.dtype == dtype
    error = np.linalg.norm(got.double().cpu().numpy() - wanted["Y"])
    assert error < 4 * torch.finfo(dtype).eps * np.linalg.norm(wanted["Y"])
