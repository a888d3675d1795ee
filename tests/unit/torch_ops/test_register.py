"""Operators of torch, on a CPU: schema, fake kernel, gradient, compiled graphs."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
import torch
from naive_plans import one_block_plan
from plans import rms_plan, two_kernel_plan
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from mirage_py.errors import InputError
from mirage_py.frontend.torch.trace import trace
from mirage_py.runtime.base.emission import emit_steps
from mirage_py.torch_ops import register
from mirage_py.torch_ops.meaning import OperatorMeaning
from mirage_py.torch_ops.register import as_torch_op
from mirage_py.ugraph.checks.run_time_sizes import with_run_time_sizes
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import LibraryCall, UGraph

_NUMBER = count()


def fresh_name() -> str:
    return f"mirage_py_tests::op{next(_NUMBER)}"


def layer(x, w):
    return torch.relu(x @ w), (x * x).sum(-1)


def inputs(m=6, grad=False):
    return torch.randn(m, 8, requires_grad=grad), torch.randn(8, 4, requires_grad=grad)


@pytest.fixture(scope="module")
def program():
    return trace(layer, *inputs())


@pytest.fixture(scope="module")
def op(program):
    return as_torch_op(fresh_name(), program, one_block_plan(program))


def test_the_schema(op):
    schema = str(op.default._schema)
    assert schema.endswith("(Tensor x, Tensor w) -> (Tensor, Tensor)")


def test_values_on_a_cpu_are_those_of_the_program(op):
    x, w = inputs()
    torch.testing.assert_close(op(x, w), layer(x, w))
    torch.testing.assert_close(op(w=w, x=x), layer(x, w))


@pytest.mark.parametrize("grad", [False, True])
def test_opcheck(op, grad):
    torch.library.opcheck(op.default, inputs(grad=grad))


def test_the_gradient_is_that_of_the_function(op):
    x, w = inputs(grad=True)
    a, b = op(x, w)
    (a.sum() + (b * b).sum()).backward()
    got = x.grad, w.grad
    x.grad = w.grad = None
    a, b = layer(x, w)
    (a.sum() + (b * b).sum()).backward()
    torch.testing.assert_close(got, (x.grad, w.grad))


def test_a_gradient_of_ones_own(program):
    seen = []

    def backward(saved, upstream):
        seen.append(len(upstream))
        return [torch.ones_like(t) for t in saved]

    op = as_torch_op(fresh_name(), program, one_block_plan(program), backward)
    x, w = inputs(grad=True)
    op(x, w)[0].sum().backward()
    assert seen == [2]
    assert torch.equal(x.grad, torch.ones_like(x))


def test_inside_torch_compile(op):
    compiled = torch.compile(lambda x, w: op(x, w)[0] * 2, backend="aot_eager", fullgraph=True)
    x, w = inputs()
    torch.testing.assert_close(compiled(x, w), layer(x, w)[0] * 2)


def test_sizes_that_are_known_at_launch(program):
    dim = program.dim_names[0]
    plan = with_run_time_sizes(one_block_plan(program), [dim])
    op = as_torch_op(fresh_name(), program, plan)
    for m in (6, 9):
        x, w = inputs(m)
        torch.testing.assert_close(op(x, w), layer(x, w))
    torch.library.opcheck(op.default, inputs(9, grad=True))


def test_library_calls_make_an_opaque_operator():
    program = trace(lambda x, w: x @ w, *inputs())
    x, w = (t.name for t in program.inputs)
    call = LibraryCall("product", "matmul", (x, w), program.outputs[0].tensor.name)
    plan = Plan(UGraph(program, (call,)), (LaunchConfig(),))
    op = as_torch_op(fresh_name(), program, plan)
    torch.library.opcheck(op.default, inputs(grad=True))


def test_kernels_with_memory_between_them():
    plan = two_kernel_plan()
    op = as_torch_op(fresh_name(), plan.ugraph.program, plan)
    x = torch.randn(33, 70).half()
    want = x.float() / (x.float() ** 2).sum(-1, keepdim=True)
    torch.testing.assert_close(op(x).float(), want, atol=1e-3, rtol=1e-2)
    torch.library.opcheck(op.default, (x,))


def test_no_kernel_starts_early_where_a_compiler_orders_the_launches():
    """What writes an input of the second one may stand between both."""
    plan = two_kernel_plan()
    early = tuple(o.with_flag("start", "early") for o in plan.options)
    plan = replace(plan, options=early)
    program, steps = plan.ugraph.program, emit_steps(plan)
    assert [s.order.uses_pdl for s in steps] == [False, True]
    launches = register._launches(plan, steps, OperatorMeaning(program, plan))
    with FakeTensorMode():
        x = torch.empty(33, 70, dtype=torch.float16, device="cuda")
    text = make_fx(launches, tracing_mode="fake")(x).code
    assert text.count("triton_kernel_wrapper_mutation(") == 2
    assert "launch_pdl" not in text


def test_names():
    plan = rms_plan()
    program = plan.ugraph.program
    with pytest.raises(InputError, match="no name of an operator"):
        as_torch_op("rms", program, plan)
    name = fresh_name()
    assert as_torch_op(name, program, plan) is as_torch_op(name, program, plan)
    other = rms_plan(9)
    with pytest.raises(InputError, match="is another operator already"):
        as_torch_op(name, other.ugraph.program, other)
    with pytest.raises(InputError, match="no kernel of its own"):
        as_torch_op(fresh_name(), program, None)
