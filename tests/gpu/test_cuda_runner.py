"""CUDA kernels on the GPU: launches, tensor maps, clusters, CUDA graphs; both back ends tuned."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import cuda_plans
import pytest
import torch
from cuda_kernels import doubling_plan, emitting
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
from mirage_py.pipeline.selection.backends import for_cuda
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.runtime.compile.compile_cuda import CudaSource, machine_code, takes
from mirage_py.runtime.env.environment import detect_target
from mirage_py.runtime.launch.cuda_driver import cuda_driver
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.runtime.store.saved import save_artifact
from mirage_py.runtime.tune.baselines import baselines
from mirage_py.runtime.tune.tuner import tune
from mirage_py.ugraph.ir.plan import Plan

pytestmark = pytest.mark.gpu

EMITTED = {
    "rms": (lambda: rms_plan(16, 1024, 512, (16, 32, 128)), rms_reference),
    "rms_tails": (rms_plan, rms_reference),
    "attention": (lambda: attention_plan(2, 128, 512, 64, (64, 64)), attention_reference),
    "attention_tails": (attention_plan, attention_reference),
    "two_kernels": (two_kernel_plan, scale_reference),
}


@pytest.fixture(params=["plain", "copied", "cluster2", "cluster16"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A kernel written by hand stands for the plan that doubles."""
    major, minor = torch.cuda.get_device_capability()
    if not takes(10 * major + minor, 80 if request.param == "plain" else 90):
        pytest.skip("the GPU lacks its instructions")
    emitting(monkeypatch, lambda _: request.param)
    return request.param


def in_cuda(plan: Plan) -> Plan:
    target = detect_target()
    assert target is not None
    return for_cuda(plan, target)


def rows(count: int = 256) -> torch.Tensor:
    return torch.randn(count, 32, device="cuda")


def test_launches(kind: str):
    runner = PlanRunner(doubling_plan(256))
    x = rows()
    (poisoned,) = runner.run_poisoned(x)
    assert torch.equal(poisoned, x + x)
    for fresh in (rows(), rows(), x):
        out = torch.full_like(fresh, float("nan"))
        runner.run_into([fresh], [out])
        assert torch.equal(out, fresh + fresh)


def test_replays_in_a_cuda_graph_with_changed_inputs(kind: str):
    runner = PlanRunner(doubling_plan(256))
    runner.warmup()
    x = rows()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = runner(x)
    for _ in range(2):
        x.copy_(rows())
        got.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(got, x + x)


def test_nothing_is_compiled_during_capture(monkeypatch: pytest.MonkeyPatch):
    emitting(monkeypatch, lambda _: "plain")
    runner, x = PlanRunner(doubling_plan(256)), rows()

    def capture() -> None:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            x.add_(0)
            runner(x)

    with pytest.raises(InputError, match="inside a CUDA graph capture"):
        capture()
    torch.cuda.synchronize()
    assert torch.equal(runner(x), x + x)


def test_launches_on_the_current_stream(kind: str):
    runner, x = PlanRunner(doubling_plan(256)), rows()
    want = runner(x)
    torch.cuda.synchronize()
    late = torch.zeros_like(x)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late.copy_(x)
        got = runner(late)
    stream.synchronize()
    assert torch.equal(got, want)


def test_a_fresh_thread_launches(kind: str):
    runner, x = PlanRunner(doubling_plan(256)), rows()
    runner.warmup()
    found: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: found.append(runner(x)))
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert torch.equal(found[0], x + x)


def test_what_the_driver_says_of_a_kernel_is_what_ptxas_said(monkeypatch: pytest.MonkeyPatch):
    (kernel,) = emit_kernels(in_cuda(rms_plan(16, 256, 128)))
    major, minor = torch.cuda.get_device_capability()
    made = machine_code(CudaSource.of(kernel), 10 * major + minor)
    torch.cuda.init()
    cuda_driver().enter(torch.cuda.current_device())
    registers, local_bytes, smem_bytes = cuda_driver().facts(
        cuda_driver().load(made.cubin, kernel.name)
    )
    assert registers == made.resources.registers
    assert local_bytes // 4 == made.resources.spills
    assert smem_bytes >= (made.resources.smem_bytes or 0)


def test_what_the_gpu_does_not_take_is_said(monkeypatch: pytest.MonkeyPatch):
    from mirage_py.runtime.base import emission

    emitting(monkeypatch, lambda _: "plain")
    before = emission._emitted
    large = lambda plan: tuple(replace(k, smem_bytes=1 << 20) for k in before(plan))  # noqa: E731
    monkeypatch.setattr(emission, "_emitted", large)
    with pytest.raises(CompileError, match="the GPU does not take it"):
        PlanRunner(doubling_plan(256))(rows())
    torch.cuda.synchronize()


@pytest.mark.parametrize("name", EMITTED)
def test_emitted_kernels_agree_with_float64(name: str):
    make, reference = EMITTED[name]
    check_agreement(in_cuda(make()), reference)


@pytest.mark.parametrize("overlap", ["", "on", "across"])
@pytest.mark.parametrize("stores", ["", "lanes", "rows"])
def test_blocks_that_stay_agree_with_float64(overlap: str, stores: str):
    """Sixteen places for five blocks."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the GPU lacks its instructions")
    plan = attention_plan(8, 256, 512, 64, (128, 64))
    flags = {"arch": "sm_90a", "producer": "warps", "overlap": overlap, "stores": stores}
    flags |= {"turns": "on", "rescaling": "lazy", "blocks": "5"}
    check_agreement(cuda_plans.for_cuda(plan, 8, 3, **flags), attention_reference)


def check_agreement(plan: Plan, reference: cuda_plans.Reference) -> None:
    """A plan makes of normally distributed inputs what ``reference`` makes, whenever it runs."""
    arrays = random_inputs(plan.ugraph.program, 0)
    tensors = []
    for t in plan.ugraph.program.inputs:
        dtype = getattr(torch, t.dtype.torch_name)
        tensors.append(torch.from_numpy(arrays[t.name]).to("cuda", dtype))
        arrays[t.name] = tensors[-1].double().cpu().numpy()
    runner = PlanRunner(plan)
    (got,) = runner.run_poisoned(*tensors)
    assert relative_error(got.double().cpu().numpy(), reference(arrays)) < 3e-3
    for _ in range(3):
        assert torch.equal(runner.run_poisoned(*tensors)[0], got)


def test_a_call_costs_little_on_the_host(monkeypatch: pytest.MonkeyPatch):
    emitting(monkeypatch, lambda _: "plain")
    runner, x = PlanRunner(doubling_plan(256)), rows()
    out = torch.empty_like(x)
    for _ in range(10):
        runner.run_into([x], [out])
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(300):
        runner.run_into([x], [out])
    call_us = (time.perf_counter() - start) / 300 * 1e6
    torch.cuda.synchronize()
    print(f"{call_us:.1f} us a call on the host")  # noqa: T201
    assert call_us < 50


def test_an_artifact_runs(tmp_path: Path):
    plan = in_cuda(rms_plan(16, 256, 128))
    save_artifact(tmp_path / "out", program=plan.ugraph.program, plan=plan, report={})
    arrays = random_inputs(plan.ugraph.program, 1)
    tensors = [torch.from_numpy(a).to("cuda", torch.float16) for a in arrays.values()]
    arrays = {n: t.double().cpu().numpy() for n, t in zip(arrays, tensors, strict=True)}
    got = mirage_py.load(tmp_path / "out")(*tensors)
    assert relative_error(got.double().cpu().numpy(), rms_reference(arrays)) < 3e-3


def test_both_back_ends_are_tuned_together_and_wrong_results_are_caught():
    target = detect_target()
    assert target is not None
    triton = two_kernel_plan(512, 512)
    right = in_cuda(triton)
    (first, second) = right.ugraph.kernels
    nodes = tuple(replace(n, op="abs") if n.op == "square" else n for n in first.nodes)
    wrong_kernels = (replace(first, nodes=nodes), second)
    wrong = replace(right, ugraph=replace(right.ugraph, kernels=wrong_kernels))
    assert nodes != first.nodes
    report = tune(
        triton.ugraph.program,
        [triton, right, wrong],
        baselines(triton.ugraph.program, effort="none"),
        target=target,
        compile_workers=2,
    )
    ours = [m for m in report.measured if m.plan is not None]
    assert [m.passed for m in ours] == [True, True, False], [m.reason for m in ours]
    assert all(m.timed for m in ours[:2])
    assert [m.plan.backend for m in ours if m.plan] == ["triton", "cuda", "cuda"]
    assert all(f.registers for f in ours[1].facts)
