"""Cached calls on a GPU: the current stream, CUDA graphs, threads, addresses, operators."""

from __future__ import annotations

import threading

import pytest
import torch

from benchmarks.calibration.launch_overhead import plan_of, scaled
from mirage_py.frontend.decorator import CallOptions, SuperoptimizedFunction
from mirage_py.frontend.torch.trace import trace
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.runtime.sized.sized_launch import SizedRunner
from mirage_py.torch_ops.register import as_torch_op
from mirage_py.ugraph.checks.run_time_sizes import with_run_time_sizes

pytestmark = pytest.mark.gpu


def inputs(rows: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 64, device="cuda").half(), torch.randn(64, device="cuda").half()


def _planned(program, *_):
    return PlanRunner(plan_of(program))


def ways():
    x, w = inputs()
    program = trace(scaled, x, w)
    plan = plan_of(program)
    runner = PlanRunner(plan)
    sized = SizedRunner(with_run_time_sizes(plan, program.dim_names[:1]))
    decorated = SuperoptimizedFunction(scaled, CallOptions(strict=True), _planned)
    return {"artifact": runner, "sizes": sized, "decorated": decorated}


@pytest.mark.parametrize("name", ["artifact", "sizes", "decorated"])
def test_a_cached_call_is_a_call(name: str):
    f, (x, w) = ways()[name], inputs()
    for _ in range(3):
        assert torch.equal(f(x, w), x * w)
    odd = torch.empty(32 * 64 + 1, device="cuda").half()[1:].view(32, 64).copy_(x)
    turned = x.T.contiguous().T
    for value in (odd, turned, x):
        assert torch.equal(f(value, w), x * w)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = f(x, w)
    x.fill_(3)
    graph.replay()
    assert torch.equal(out, x * w)


@pytest.mark.parametrize("name", ["artifact", "sizes", "decorated"])
def test_threads_and_streams(name: str):
    f, (x, w) = ways()[name], inputs()
    want, right = x * w, []
    f(x, w)
    torch.cuda.synchronize()

    def work():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            # Behind a wait on its own stream: a launch on another would not see what is written.
            torch.cuda._sleep(1_000_000)
            mine = x.clone()
            right.extend(torch.equal(f(mine, w), want) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 80


def test_an_operator_is_what_it_was():
    x, w = inputs()
    program = trace(scaled, x, w)
    op = as_torch_op("mirage_py_gpu_tests::scaled", program, plan_of(program)).default
    for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode):
        with mode():
            assert torch.equal(op(x, w), x * w)
    y = x.clone().requires_grad_()
    op(y, w).sum().backward()
    torch.testing.assert_close(y.grad, w.expand_as(x))
    torch.library.opcheck(op, (x, w))
    torch.library.opcheck(op, (y, w))
    compiled = torch.compile(lambda x, w: op(x, w) * 2, fullgraph=True)
    assert torch.equal(compiled(x, w), x * w * 2)
