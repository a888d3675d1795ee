"""A traced graph computes what the function does, with other tensors in the place of its own."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from mirage_py.frontend.torch.guards.calls import Signature
from mirage_py.frontend.torch.reference import reference_of
from mirage_py.frontend.torch.trace import TracedCall, trace_call


def traced_call(fn, *arguments, as_in_memory: bool = True) -> TracedCall:
    signature = Signature.of(fn)
    with torch.no_grad():
        return trace_call(signature, signature.bind(arguments, {}), as_in_memory=as_in_memory)


@pytest.mark.parametrize("as_in_memory", [True, False])
def test_held_tensors_are_those_that_are_given(as_in_memory: bool):
    layer = torch.nn.Linear(8, 4)

    def function(x):
        return layer(x).T.relu()

    traced = traced_call(function, torch.randn(3, 8), as_in_memory=as_in_memory)
    x, weight, bias = (torch.randn(t.shape) for t in traced.program.inputs)
    (found,) = traced.by_graph(x, weight, bias)
    right = F.linear(x, weight, bias).relu()
    torch.testing.assert_close(found, right if as_in_memory else right.T)
    # The function itself has its own weights, whatever it is given.
    own = reference_of(traced, [x], lambda leaves: function(leaves[0]))
    assert not torch.allclose(own(x, weight, bias), found)
    torch.testing.assert_close(own.traced(x, weight, bias), (found,))


def test_outputs_lie_as_the_program_writes_them():
    traced = traced_call(lambda x: x.T * 2.0, torch.randn(3, 8))
    (found,) = traced.by_graph(x := torch.randn(3, 8))
    assert found.shape == traced.program.outputs[0].tensor.shape == (3, 8)
    torch.testing.assert_close(found, x * 2.0)


def test_tables_and_what_gives_only_its_shape():
    def scaled(x, like):
        return x * torch.tensor([1.0, 2.0, 3.0]) + torch.ones_like(like)

    x = torch.randn(2, 3)
    traced = traced_call(scaled, x, torch.randn(2, 3))
    (found,) = traced.by_graph(*traced.inputs([x, None]))
    torch.testing.assert_close(found, x * torch.tensor([1.0, 2.0, 3.0]) + 1.0)


def test_what_is_written_is_an_output():
    def push(x, buffer):
        buffer.copy_(buffer * 0.5 + x)
        return x + 1.0

    x, buffer = torch.randn(4), torch.randn(4)
    traced = traced_call(push, x, buffer)
    written = reference_of(traced, [x, buffer], lambda leaves: push(*leaves))
    before = buffer.clone()
    found = written.traced(*traced.inputs([x, buffer]))
    torch.testing.assert_close(found, (x + 1.0, before * 0.5 + x))
    torch.testing.assert_close(buffer, before)


def test_who_draws_random_numbers_is_compared_with_nothing():
    traced = traced_call(lambda x: x + 1.0, torch.randn(4))
    assert not traced.graph.draws
    graph = torch.fx.Graph()
    graph.call_function(torch.ops.aten.dropout.default, (graph.placeholder("x"), 0.5, True))
    traced.graph._graph = graph
    assert traced.graph.draws
    own = reference_of(traced, [torch.randn(4)], lambda leaves: leaves[0] + 1.0)
    assert own.traced is None
