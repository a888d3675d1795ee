"""Launch options on the GPU: kernels that start early, tiles by the copy engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import several_kernels
import torch
from cuda_plans import for_cuda
from plans import attention_plan, random_inputs, relative_error, rms_plan

from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.plan import Plan

pytestmark = pytest.mark.gpu

REPLAYS = 20


def changed(plan: Plan, **changes: bool) -> Plan:
    return replace(plan, options=tuple(replace(o, **changes) for o in plan.options))


def given(plan: Plan, seed: int) -> tuple[list[torch.Tensor], np.ndarray]:
    """Inputs in the plan's types, and the output that they have in float64."""
    arrays = random_inputs(plan.ugraph.program, seed)
    tensors = []
    for t in plan.ugraph.program.inputs:
        dtype = getattr(torch, t.dtype.torch_name)
        tensors.append(torch.from_numpy(arrays[t.name]).to("cuda", dtype))
        arrays[t.name] = tensors[-1].double().cpu().numpy()
    (output,) = evaluate_program(plan.ugraph.program, arrays, FloatMeaning()).values()
    return tensors, output


def error(got: torch.Tensor, want: np.ndarray) -> float:
    return relative_error(got.double().cpu().numpy(), want)


@pytest.mark.parametrize("name", ["split_attention", "split_rms_norm_matmul"])
def test_a_kernel_that_starts_early_sees_all_of_the_one_before(name: str) -> None:
    """In a graph, again and again, with new inputs: what is left from before would show."""
    plan = changed(several_kernels.plan(name), early_start=True)
    runner = PlanRunner(plan)
    inputs, want = given(plan, 0)
    assert error(runner(*inputs), want) < 3e-3
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = [runner(*inputs) for _ in range(4)]
    for seed in range(1, REPLAYS):
        fresh, want = given(plan, seed)
        for tensor, values in zip(inputs, fresh, strict=True):
            tensor.copy_(values)
        graph.replay()
        assert all(error(o, want) < 3e-3 for o in outputs)


def _copied(inputs: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    for tensor, values in zip(inputs, sources, strict=True):
        tensor.copy_(values)


def _computed(inputs: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    for tensor, values in zip(inputs, sources, strict=True):
        torch.mul(values, 1, out=tensor)


def _cleared_first(inputs: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    for tensor, values in zip(inputs, sources, strict=True):
        tensor.zero_()
        tensor.copy_(values)


def _on_two_streams(inputs: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    here, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(here)
    with torch.cuda.stream(side):
        torch.mul(sources[0], 1, out=inputs[0])
    _computed(inputs[1:], sources[1:])
    here.wait_stream(side)


@pytest.mark.parametrize("write", [_copied, _computed, _cleared_first, _on_two_streams])
def test_the_first_cuda_kernel_sees_all_of_what_lies_in_front(
    write: Callable[[list[torch.Tensor], list[torch.Tensor]], None],
) -> None:
    """Copies, kernels and what another stream does, in a graph and without one."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the GPU is no Hopper")
    plan = for_cuda(rms_plan(16, 1024, 512, (16, 32, 128)), arch="sm_90a", start="early")
    runner = PlanRunner(plan)
    inputs, want = given(plan, 0)
    sources = [torch.empty_like(x) for x in inputs]
    assert error(runner(*inputs), want) < 3e-3
    _copied(sources, inputs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        write(inputs, sources)
        output = runner(*inputs)
    for seed in range(1, REPLAYS):
        fresh, want = given(plan, seed)
        _copied(sources, fresh)
        graph.replay()
        assert error(output, want) < 3e-3
        for tensor in inputs:
            tensor.fill_(3)
        write(inputs, sources)
        assert error(runner(*inputs), want) < 3e-3


def test_cuda_plans_that_read_one_another_see_all_of_it() -> None:
    """Each waits for the one before: a chain in which every output is read twice."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the GPU is no Hopper")
    plan = for_cuda(rms_plan(16, 512, 512, (16, 32, 128)), arch="sm_90a", start="early")
    late = for_cuda(rms_plan(16, 512, 512, (16, 32, 128)), arch="sm_90a")
    runner, other = PlanRunner(plan), PlanRunner(late)
    (x, *rest), _ = given(plan, 0)

    def chain(run: PlanRunner) -> torch.Tensor:
        first, second = x, run(x, *rest)
        for _ in range(6):
            first, second = second, run(second, *rest).add_(first)
            second = run(second, *rest)
        return second

    assert torch.equal(chain(runner), chain(other))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = chain(runner)
    for seed in range(1, REPLAYS):
        x.copy_(given(plan, seed)[0][0])
        want = chain(other)
        graph.replay()
        assert torch.equal(output, want)


@pytest.mark.parametrize(
    "plan",
    [
        rms_plan(64, 1024, 512, (64, 64, 64)),
        rms_plan(65, 1000, 504, (64, 64, 64)),
        attention_plan(2, 128, 512, 64, (64, 64)),
    ],
    ids=["rms", "rms_tails", "attention"],
)
def test_tiles_by_the_copy_engine(plan: Plan) -> None:
    plan = changed(plan, descriptors=True)
    assert any(k.text.tiles for k in emit_kernels(plan))
    runner = PlanRunner(plan)
    for seed in range(3):
        inputs, want = given(plan, seed)
        assert error(runner(*inputs), want) < 3e-3
