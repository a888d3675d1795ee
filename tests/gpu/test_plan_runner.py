"""Emitted kernels on the GPU: right, on the current stream, and in CUDA graphs."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from plans import (
    attention_plan,
    attention_reference,
    random_inputs,
    relative_error,
    rms_plan,
    rms_reference,
    scale_reference,
    two_kernel_plan,
)

import mirage_py
from mirage_py.errors import CompileError, InputError
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.runtime.store.saved import save_artifact
from mirage_py.ugraph.ir.dtypes import BF16, F16, F32
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import LibraryCall, UGraph

pytestmark = pytest.mark.gpu

CASES = {
    "rms": (lambda: rms_plan(16, 1024, 512, (16, 32, 128)), rms_reference),
    "rms_tails": (rms_plan, rms_reference),
    "attention": (lambda: attention_plan(2, 128, 512, 64, (64, 64)), attention_reference),
    "attention_tails": (attention_plan, attention_reference),
    "two_kernels": (two_kernel_plan, scale_reference),
    "strided": (lambda: two_kernel_plan(strides=(1, 40)), scale_reference),
}


def inputs_of(plan: Plan, seed: int = 0) -> tuple[list[torch.Tensor], dict]:
    """Random tensors in the plan's types, and the same values in float64."""
    arrays = random_inputs(plan.ugraph.program, seed)
    tensors = []
    for t in plan.ugraph.program.inputs:
        dtype = getattr(torch, t.dtype.torch_name)
        tensors.append(torch.from_numpy(arrays[t.name]).to("cuda", dtype))
        arrays[t.name] = tensors[-1].double().cpu().numpy()
    return tensors, arrays


def error(got: torch.Tensor, want) -> float:
    return relative_error(got.double().cpu().numpy(), want)


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_float64(name: str):
    make, reference = CASES[name]
    plan = make()
    tensors, arrays = inputs_of(plan)
    runner = PlanRunner(plan)
    (poisoned,) = runner.run_poisoned(*tensors)
    assert error(poisoned, reference(arrays)) < 3e-3
    got = runner(*tensors)
    assert torch.equal(got, poisoned)
    out = torch.full_like(poisoned, float("nan"))
    laid_out = [e.accept(t, t.device) for e, t in zip(runner.inputs, tensors, strict=True)]
    runner.run_into(laid_out, [out])
    assert torch.equal(got, out)


@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
def test_element_types(dtype):
    plan = two_kernel_plan(200, 300, dtype=dtype)
    tensors, arrays = inputs_of(plan)
    (got,) = PlanRunner(plan).run_poisoned(*tensors)
    bound = 1e-5 if dtype == F32 else 4 * dtype.unit_roundoff
    assert error(got, scale_reference(arrays)) < bound


def test_large_logits_do_not_overflow():
    plan = attention_plan(2, 64, 256, 64, (64, 64))
    tensors, arrays = inputs_of(plan)
    tensors[0] *= 50
    arrays["Q"] = tensors[0].double().cpu().numpy()
    (got,) = PlanRunner(plan).run_poisoned(*tensors)
    assert error(got, attention_reference(arrays)) < 3e-3


def test_other_layouts_are_copied():
    plan = rms_plan(16, 256, 128)
    (x, g, w), _ = inputs_of(plan)
    runner = PlanRunner(plan)
    want = runner(x, g, w)
    transposed = w.T.contiguous().T
    assert torch.equal(runner(x, g, transposed), want)
    shifted = torch.empty(x.numel() + 1, dtype=x.dtype, device="cuda")[1:].view_as(x).copy_(x)
    assert shifted.data_ptr() % 16 != 0
    assert torch.equal(runner(shifted, g, w), want)
    with pytest.raises(InputError, match="is on cpu"):
        runner(x, g.cpu(), w)
    with pytest.raises(InputError, match="requires a gradient"):
        runner(x.clone().requires_grad_(), g, w)


def test_launches_on_the_current_stream():
    plan = two_kernel_plan(512, 512)
    (x,), _ = inputs_of(plan)
    runner = PlanRunner(plan)
    want = runner(x)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    late = torch.zeros_like(x)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late.copy_(x)
        got = runner(late)
    stream.synchronize()
    assert torch.equal(got, want)


def test_replays_in_a_cuda_graph_with_changed_inputs():
    plan = rms_plan(16, 256, 128)
    tensors, _ = inputs_of(plan)
    runner = PlanRunner(plan)
    runner.warmup()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = runner(*tensors)
    for seed in (1, 2):
        fresh, arrays = inputs_of(plan, seed)
        for old, new in zip(tensors, fresh, strict=True):
            old.copy_(new)
        got.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert error(got, rms_reference(arrays)) < 3e-3


def test_intermediates_survive_in_a_cuda_graph():
    plan = two_kernel_plan(100, 200)
    (x,), arrays = inputs_of(plan)
    runner = PlanRunner(plan)
    runner(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first = runner(x)
        second = runner(x)
    graph.replay()
    assert torch.equal(first, second)
    assert error(second, scale_reference(arrays)) < 3e-3


def test_nothing_is_compiled_during_capture():
    plan = rms_plan(16, 128, 128)
    tensors, _ = inputs_of(plan)
    runner = PlanRunner(plan)

    def capture() -> None:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            tensors[0] += 0  # an empty graph would be a complaint of its own
            runner(*tensors)

    with pytest.raises(InputError, match="inside a CUDA graph capture"):
        capture()
    torch.cuda.synchronize()
    assert torch.isfinite(runner(*tensors)).all()


def test_library_calls_between_kernels():
    program = rms_plan(16, 64, 32).ugraph.program
    calls = (LibraryCall("product", "matmul", ("X", "W"), "Y"),)
    plan = Plan(UGraph(program, calls), (LaunchConfig(),))
    (x, g, w), _ = inputs_of(plan)
    assert torch.equal(PlanRunner(plan)(x, g, w), x @ w)


def test_a_kernel_that_the_gpu_does_not_take():
    plan = attention_plan(1, 512, 4096, 128, (128, 256))
    tensors, _ = inputs_of(plan)
    with pytest.raises(CompileError, match="attention_kernel"):
        PlanRunner(plan)(*tensors)
    torch.cuda.synchronize()


def test_a_profiler_sees_the_launches():
    from triton import knobs

    plan = two_kernel_plan(64, 64)
    tensors, _ = inputs_of(plan)
    runner = PlanRunner(plan)
    want = runner(*tensors)
    seen = []

    def hook(metadata) -> None:
        seen.append(metadata.get()["name"])

    knobs.runtime.launch_enter_hook.add(hook)
    try:
        assert torch.equal(runner(*tensors), want)
    finally:
        knobs.runtime.launch_enter_hook.remove(hook)
    assert seen == ["row_sums", "divide"]


def test_a_call_costs_little_on_the_host():
    plan = rms_plan(2, 64, 32)
    tensors, _ = inputs_of(plan)
    runner = PlanRunner(plan)
    for _ in range(10):
        runner(*tensors)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(300):
        runner(*tensors)
    call_us = (time.perf_counter() - start) / 300 * 1e6
    torch.cuda.synchronize()
    print(f"{call_us:.1f} us a call on the host")  # noqa: T201
    assert call_us < 100


def test_an_artifact_runs(tmp_path: Path):
    plan = rms_plan(16, 256, 128)
    program = plan.ugraph.program
    tensors, arrays = inputs_of(plan)
    save_artifact(tmp_path / "out", program=program, plan=plan, report={})
    assert error(mirage_py.load(tmp_path / "out")(*tensors), rms_reference(arrays)) < 3e-3
    save_artifact(tmp_path / "eager", program=program, plan=None, report={})
    assert error(mirage_py.load(tmp_path / "eager")(*tensors), rms_reference(arrays)) < 5e-3


def test_a_kernel_file_runs_alone(tmp_path: Path):
    for kernel in emit_kernels(two_kernel_plan(64, 64)):
        path = tmp_path / f"{kernel.name}.py"
        path.write_text(kernel.source)
        done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[0] in ("S", "Y")
