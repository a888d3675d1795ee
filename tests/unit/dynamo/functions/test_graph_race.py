"""Which inputs a graph writes to, and which graphs are not called again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from mirage_py.dynamo.functions.dispatch_cost import dispatch_us
from mirage_py.dynamo.functions.graph_race import times_of, written_places
from mirage_py.dynamo.functions.suppressed_errors import suppressed_errors
from mirage_py.dynamo.whole_graph import benchmark
from mirage_py.dynamo.whole_graph.real_inputs import NotBenchmarkedError


def graph_of(fn: Callable[..., Any], *inputs: Any) -> tuple[torch.fx.GraphModule, list[Any]]:
    """What dynamo hands over."""
    caught: list[Any] = []

    def backend(module: Any, given: Any) -> Any:
        caught.append((module, [torch.empty_like(x) for x in given]))
        return module.forward

    torch.compile(fn, backend=backend, dynamic=False)(*inputs)
    ((module, given),) = caught
    return module, given


def test_what_is_written_to():
    def fn(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        b[1:].mul_(2)
        c.view(-1)[0] = 1.0
        return a + b + c

    module, given = graph_of(fn, *(torch.ones(3) for _ in range(3)))
    names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
    assert [names[n][2] for n in written_places(module, given)] == ["b", "c"]
    module, given = graph_of(lambda a: a.sort().values, torch.ones(3))
    assert written_places(module, given) == []


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (lambda x: x.t_() * 2, "shape"),
        (lambda x: x.unsqueeze_(0) * 2, "shape"),
    ],
)
def test_what_cannot_be_put_back(fn: Callable[..., Any], words: str):
    module = torch.fx.symbolic_trace(fn)
    with pytest.raises(NotBenchmarkedError, match=words):
        written_places(module, [torch.ones(2, 3)])


def test_parameters_and_what_the_graph_holds_are_not_written_to():
    module = torch.fx.symbolic_trace(lambda x: x.add_(1))
    weight = nn.Parameter(torch.ones(2), requires_grad=False)
    with pytest.raises(NotBenchmarkedError, match="parameters"):
        written_places(module, [weight])
    with pytest.raises(NotBenchmarkedError, match="holds"):
        written_places(torch.fx.symbolic_trace(nn.Linear(2, 2)), [torch.ones(2, 2)])
    with pytest.raises(NotBenchmarkedError, match="not known"):
        written_places(torch.fx.symbolic_trace(lambda x: x @ x), [torch.ones(2, 3)])
    assert torch.equal(weight, torch.ones(2))


def test_graphs_of_training_are_not_called_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(benchmark, "clock_for", lambda _: pytest.fail("timed"))
    module = torch.fx.symbolic_trace(lambda x: x + 1)
    with pytest.raises(NotBenchmarkedError, match="grad"):
        times_of({"eager": module.forward}, module, [torch.ones(2, requires_grad=True)])


def test_errors_are_suppressed_inside_alone():
    from torch._dynamo import config

    assert config.suppress_errors is False
    with suppressed_errors():
        with suppressed_errors():
            assert config.suppress_errors is True
        assert config.suppress_errors is True
    assert config.suppress_errors is False
    with pytest.raises(KeyError), suppressed_errors():
        raise KeyError
    assert config.suppress_errors is False


def test_guards_cost_what_they_cost_once():
    assert dispatch_us() == dispatch_us() >= 0.0
