"""Floats of modules where sizes are dynamic: numbers, and not inputs that a kernel cannot read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from mirage_py.dynamo.serve.fallback import compiled_graph

Compiled = Callable[..., Any]
Lines = Callable[[str], list[str]]


class Scaled(torch.nn.Module):
    """A norm and a product, with an epsilon of its own and a scale that comes with each call."""

    def __init__(self) -> None:
        super().__init__()
        self.epsilon = 1e-5
        self.linear = torch.nn.Linear(32, 48, bias=False)

    def forward(self, x: torch.Tensor, scale: float) -> torch.Tensor:
        made: torch.Tensor = self.linear(x * torch.rsqrt(x.square().mean(-1, True) + self.epsilon))
        return made * scale


def test_the_epsilon_of_a_norm_is_a_number_and_an_argument_is_none(
    compiled: Compiled, lines: Lines
):
    module = Scaled().requires_grad_(False)
    served = compiled(module, dynamic=True)
    counters.clear()
    for rows, scale in ((5, 2.5), (7, 2.5), (9, 0.125)):
        x = torch.randn(rows, 32)
        torch.testing.assert_close(served(x, scale), module(x, scale))
    assert counters["stats"]["unique_graphs"] == 1
    # Conversions of the argument alone: torch makes a tensor of it.
    assert [x.split()[1] for x in lines("prims.convert_element_type")] == ["2"]


def test_an_epsilon_that_changes_is_an_input_from_then_on(compiled: Compiled):
    module = Scaled().requires_grad_(False)
    served = compiled(module, dynamic=True)
    counters.clear()
    x = torch.randn(5, 32)
    for epsilon in (1e-5, 0.25, 0.5, 0.75):
        module.epsilon = epsilon
        torch.testing.assert_close(served(x, 2.5), module(x, 2.5))
    assert counters["stats"]["unique_graphs"] == 2


def test_a_baseline_is_compiled_apart_from_the_graph_around(monkeypatch: Any):
    # That graph's symbols, of floats above all, are none of its own.
    found: list[Any] = []

    def compile_fx(module: Any, inputs: Any, **_: Any) -> Any:
        found.append(torch._guards.detect_fake_mode(inputs))
        return module

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", compile_fx)
    around, own = FakeTensorMode(shape_env=ShapeEnv()), FakeTensorMode(shape_env=ShapeEnv())
    with own:
        inputs = [torch.empty(3)]
    graph = torch.fx.symbolic_trace(torch.nn.ReLU())
    with tracing(TracingContext(around)):
        compiled_graph(graph, inputs, max_autotune=False, inductor={})
    assert found == [own]
