"""Kernels whose sizes are arguments, on the GPU: right at every size, in graphs, as operators."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from naive_plans import one_block_plan
from plans import attention_plan, rms_plan, two_kernel_plan

import mirage_py
from mirage_py.errors import InputError
from mirage_py.runtime.sized.sized_check import check_sizes, run_on_gpu
from mirage_py.runtime.sized.sized_launch import SizedRunner
from mirage_py.torch_ops.register import as_torch_op
from mirage_py.ugraph.checks.run_time_sizes import with_run_time_sizes
from mirage_py.ugraph.ir.plan import Plan

pytestmark = pytest.mark.gpu


def described(plan: Plan) -> Plan:
    """Copies by the copy engine."""
    options = tuple(o.with_flag("copies", "descriptors") for o in plan.options)
    return replace(plan, options=options)


def attention_inputs(q: int, s: int) -> tuple[torch.Tensor, ...]:
    shapes = ((2, q, 64), (2, 64, s), (2, s, 64))
    return tuple(torch.randn(shape, device="cuda").half() * 0.3 for shape in shapes)


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q.float() @ k.float(), -1) @ v.float()


@pytest.mark.parametrize(
    ("plan", "dims"),
    [
        (rms_plan(16, 1024, 512, (16, 32, 128)), "b"),
        (rms_plan(), "bdn"),
        (attention_plan(2, 128, 512, 64, (64, 64)), "qs"),
        (described(attention_plan(2, 128, 512, 64, (64, 64))), "qs"),
        (two_kernel_plan(), "bd"),
    ],
)
def test_right_at_several_sizes(plan, dims):
    found = check_sizes(with_run_time_sizes(plan, tuple(dims)), run_on_gpu, seed=0)
    assert found.passed, found.reason


@pytest.mark.parametrize("change", [lambda plan: plan, described])
def test_303_lengths_without_a_compilation_each(change):
    plan = change(attention_plan(2, 128, 512, 64, (64, 64)))
    runner = SizedRunner(with_run_time_sizes(plan, ("q", "s")))
    for s in range(2, 305):
        inputs = attention_inputs(min(s, 77), s)
        torch.testing.assert_close(
            runner(*inputs).float(), reference(*inputs), atol=5e-3, rtol=5e-3
        )
    assert runner.compiled <= 6  # patterns of multiples of 16 among q, s and a row of keys


# Torch's own word on a capture that failed, as it should here.
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_in_a_graph():
    runner = SizedRunner(with_run_time_sizes(attention_plan(2, 128, 512, 64, (64, 64)), ("q", "s")))
    inputs = attention_inputs(33, 75)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(InputError, match="inside a CUDA graph"), torch.cuda.graph(graph):
        runner(*inputs)
    runner.warmup(*inputs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = runner(*inputs)
    for x in inputs:
        x.copy_(torch.randn_like(x) * 0.3)
    graph.replay()
    torch.testing.assert_close(out.float(), reference(*inputs), atol=5e-3, rtol=5e-3)


def test_a_decorated_attention(tmp_path, monkeypatch):
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))

    @mirage_py.superoptimize(
        shapes="bucketed", dynamic={name: {2: "s"} for name in "qkv"}, edges=(128,), budget=30
    )
    def attention(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    for s in (17, 64, 90, 128):
        q, k, v = (torch.randn(1, 4, s, 64, device="cuda").half() for _ in range(3))
        want = torch.nn.functional.scaled_dot_product_attention(
            q.float(), k.float(), v.float(), is_causal=True
        )
        torch.testing.assert_close(attention(q, k, v).float(), want, atol=5e-3, rtol=5e-3)
    assert attention.dispatch_table().count("<= s <=") == 1


@pytest.mark.parametrize("dims", [0, 1])
def test_an_operator(dims):
    def layer(x, w):
        return torch.relu(x @ w), (x * x).sum(-1)

    def inputs(m, grad=False):
        shapes = ((m, 32), (32, 16))
        return tuple(torch.randn(s, device="cuda", requires_grad=grad) for s in shapes)

    program = mirage_py.trace(layer, *inputs(48))
    plan = with_run_time_sizes(one_block_plan(program), program.dim_names[:dims])
    op = as_torch_op(f"mirage_py_gpu_tests::layer{dims}", program, plan)
    for m in (48, 35)[: 1 + dims]:
        x, w = inputs(m)
        torch.testing.assert_close(op(x, w), layer(x, w), atol=2e-2, rtol=2e-2)
        torch.library.opcheck(op.default, inputs(m, grad=True))
        compiled = torch.compile(lambda x, w: op(x, w)[0] * 2, fullgraph=True)
        torch.testing.assert_close(compiled(x, w), layer(x, w)[0] * 2, atol=2e-2, rtol=2e-2)
