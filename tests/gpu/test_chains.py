"""Chains on the GPU: kernels that start early behind each other, also inside of a CUDA graph."""

from __future__ import annotations

import pytest
import torch
from several_kernels import over

from benchmarks.whole_models.chains import graph_edges
from mirage_py.codegen.tiling.dependent_launch import DEPENDENT_LAUNCH
from mirage_py.frontend.spec import parse
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.ugraph.ir.launch_choices import NextStart
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan, chained

pytestmark = pytest.mark.gpu
SPEC = """
B = 1, D = 2048, N = 2048
X[B, D], R[B, N], W[N, D] : bf16
Y[b, n] = sum[d](X[b, d] * W[n, d]) + R[b, n]
"""
KERNEL = """
kernel rows {
  grid n by 16
  loop d by 256 {
    %0 = load X[b, d]
    %1 = load W[n, d]
    %2 = mul %0, %1
    %3 = sum[d] %2
    %4 = accum_sum %3
  }
  %5 = load R[b, n]
  %6 = add %4, %5
  store Y[b, n] = %6
}
"""
STEPS = 40


@pytest.fixture(autouse=True)
def _on_hopper() -> None:
    if torch.cuda.get_device_capability() != divmod(DEPENDENT_LAUNCH, 10):
        pytest.skip("not on this GPU")


def steps(runner: PlanRunner, weights: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Each step reads what the one before wrote, and overwrites what that one read."""
    kept, held = x.clone(), [torch.empty_like(x), torch.empty_like(x)]
    for number in range(STEPS):
        runner.run_into((kept if number == 0 else held[number % 2], x, weights[number % 4]),
                        (held[1 - number % 2],))  # fmt: skip
    return held[STEPS % 2]


@pytest.mark.parametrize("backend", ["triton", "cuda"])
@pytest.mark.parametrize("when", NextStart)
def test_a_chain_computes_what_normal_launches_compute(backend: str, when: NextStart) -> None:
    torch.manual_seed(0)
    weights = [torch.randn(2048, 2048, device="cuda").bfloat16() / 64 for _ in range(4)]
    x = torch.randn(1, 2048, device="cuda").bfloat16()
    plan = Plan(over(parse(SPEC), KERNEL), (LaunchConfig(4, (4,)),), backend=backend)
    plain = PlanRunner(plan)
    chain = PlanRunner(chained(plan, when, ["W"]))
    for runner in (plain, chain):
        runner.warmup()
    wanted = steps(plain, weights, x)
    assert wanted.isfinite().all()
    for _ in range(20):
        assert torch.equal(steps(chain, weights, x), wanted)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        found = steps(chain, weights, x)
    _, programmatic = graph_edges(graph)
    assert programmatic == STEPS - 1
    graph.instantiate()
    for _ in range(20):
        found.zero_()
        graph.replay()
        assert torch.equal(found, wanted)
