"""Inputs, outputs and names of a traced program."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

from mirage_py.errors import InputError, UnsupportedError
from mirage_py.frontend.torch import trace
from mirage_py.frontend.torch.guards.calls import Signature
from mirage_py.frontend.torch.trace import trace_call

X = torch.randn(4, 6)
WEIGHTS = {"up": torch.randn(6, 3), "scale": torch.tensor(0.5)}


class Holder:
    def __init__(self) -> None:
        self.weight = torch.randn(6, 5)

    def method(self, x):
        return x @ self.weight


def names(program) -> list[str]:
    return [t.name for t in program.inputs]


def test_inputs_are_named_after_parameters():
    def fn(x, *rest, scale, **more):
        return x + rest[0] * scale + more["shift"] * rest[1]

    signature = Signature.of(fn)
    arguments = signature.bind((X, X, X), {"scale": X, "shift": X})
    program = trace_call(signature, arguments).program
    assert names(program) == ["x", "rest_0", "rest_1", "scale", "more_shift"]


def test_programs_are_named_after_functions():
    assert trace(Holder().method, X).name == "method"
    assert trace(lambda x: x * 2, X).name == "program"
    assert trace(lambda x: x * 2, X, name="twice").name == "twice"
    assert trace(nn.Sequential(nn.ReLU()), X).name == "Sequential"


def test_outputs_are_named_by_their_order():
    assert [o.tensor.name for o in trace(lambda x: x * 2, X).outputs] == ["out"]
    assert [o.tensor.name for o in trace(lambda x: (x * 2, x + 1), X).outputs] == ["out0", "out1"]
    assert [o.tensor.name for o in trace(lambda out: out * 2, X).outputs] == ["result"]
    assert [o.tensor.name for o in trace(lambda out0: (out0 * 2, out0 + 1), X).outputs] == [
        "out0_1",
        "out1",
    ]


def test_dimensions_are_not_named_as_tensors_are():
    program = trace(lambda m, d: (m + d.repeat_interleave(2)) * 1, X, torch.randn(3))
    assert not {d.name for d in program.dims} & {t.name for t in program.inputs}


def test_the_type_of_a_result_is_that_of_torch():
    half, single = X.half(), X[0]
    outputs = trace(
        lambda a, b: (a * 2, a + b, a.float(), b.bfloat16(), a.sum()), half, single
    ).outputs
    assert [str(o.tensor.dtype) for o in outputs] == ["f16", "f32", "f32", "bf16", "f16"]


def test_casts_that_lose_digits_are_nodes_and_others_are_not():
    def casts(fn, *tensors):
        return [str(n.attr) for n in trace(fn, *tensors).nodes if n.op == "cast"]

    half = X.half()
    assert casts(lambda a: a.float() * 2, half) == []
    assert casts(lambda a: a.half() * 2, X) == ["f16"]
    assert casts(lambda a: a.float().half() * 2, half) == []
    assert casts(lambda a: (a.float() * 3).half() * 2, half) == ["f16"]
    assert casts(lambda a: (a.float() * 3).half(), half) == []
    assert casts(lambda a: a.bfloat16() * 2, half) == ["bf16"]
    assert casts(lambda a: (a > 0).half() * a, half) == []
    assert casts(lambda a: a * torch.arange(6).to(a.dtype), half) == []
    assert casts(lambda a: a * torch.arange(4000).to(a.dtype), torch.randn(4000).half()) == ["f16"]


def test_structures_survive(agrees):
    agrees(lambda x: {"a": x * 2, "b": [x + 1, None, 3]}, X)
    agrees(lambda x: [(x * 2,), x.sum()], X)


def test_a_tensor_returned_twice_is_one_output(agrees):
    def fn(x):
        y = x * 2
        return y, y, x + 1

    traced = agrees(fn, X)
    assert len(traced.program.outputs) == 2
    a, b, c = traced.pack([X, X + 1])
    assert a is b
    assert traced.outputs_of(lambda: (a, b, c)) == (a, c)


def test_plain_values_are_taken_as_they_are(agrees):
    def fn(x, times, flag, name=None):
        return x * times if flag and name is None else x

    agrees(fn, X, 3, flag=True)


def test_containers_of_tensors(agrees):
    traced = agrees(
        lambda x, pair, more: x * pair[0] + pair[1] @ more["w"], X, (X, X), {"w": torch.randn(6, 6)}
    )
    assert names(traced.program) == ["x", "pair_0", "pair_1", "more_w"]


def test_arguments_that_only_give_a_shape_are_no_inputs(agrees):
    traced = agrees(lambda x, like, unused: x + torch.ones_like(like) * like.shape[0], X, X, X)
    assert names(traced.program) == ["x"]


def test_functions_written_in_c(agrees):
    agrees(torch.mul, X, X)


def test_closures_globals_attributes_and_partials(agrees):
    weight = torch.randn(6, 6)

    def helper(x):
        return x @ weight

    def fn(x, other):
        return helper(x) @ WEIGHTS["up"] * WEIGHTS["scale"] + other

    traced = agrees(functools.partial(fn, other=1.0), X, single=True)
    assert names(traced.program) == ["x", "helper_weight", "WEIGHTS_up", "WEIGHTS_scale"]
    assert names(agrees(Holder().method, X, single=True).program) == ["x", "weight"]
    linear = nn.Linear(6, 2)

    def layer(x):
        return linear(x)

    program = agrees(layer, X, single=True).program
    assert names(program) == ["x", "linear_weight", "linear_bias"]
    assert names(agrees(linear.forward, X, single=True).program) == ["input", "weight", "bias"]


def test_captured_tensors_are_read_at_every_call():
    linear = nn.Linear(6, 2, bias=False).requires_grad_(False)
    signature = Signature.of(linear.forward)
    traced = trace_call(signature, signature.bind((X,), {}))
    linear.weight = nn.Parameter(torch.zeros(2, 6))
    _, weight = traced.inputs([X])
    assert weight is linear.weight


def test_captured_tensors_that_require_grad_are_refused_like_arguments():
    linear = nn.Linear(6, 2)
    with pytest.raises(UnsupportedError, match=r"input 'weight' requires grad"):
        trace(linear.forward, X)
    with torch.no_grad():
        trace(linear.forward, X)


def test_autocast_shows_as_casts():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        program = trace(lambda x, w: x @ w, X, torch.randn(6, 3))
    assert [str(n.attr) for n in program.nodes if n.op == "cast"] == ["bf16", "bf16"]
    assert str(program.outputs[0].tensor.dtype) == "bf16"

    def fn(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ w

    assert trace(fn, X, torch.randn(6, 3)).nodes == program.nodes


def test_tracing_is_repeatable():
    def fn(x, w):
        return torch.softmax(x @ w, -1) @ w.T

    digests = {trace(fn, X, torch.randn(6, 3)).digest for _ in range(3)}
    assert len(digests) == 1


def test_wrong_arguments_are_the_users_error():
    with pytest.raises(InputError, match="missing a required argument"):
        trace(lambda x, y: x + y, X)
    with pytest.raises(UnsupportedError, match="no tensor"):
        trace(lambda x: x + 1, 3.0)
