"""Baselines of a region's kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from mirage_py.dynamo.regions.region_program import region_program
from mirage_py.dynamo.serve import servers
from mirage_py.dynamo.serve.region_call import layouts_of

Trace = Callable[..., torch.fx.GraphModule]


def test_numbers_that_a_region_makes_are_traced_without_data(
    traced: Trace, monkeypatch: pytest.MonkeyPatch
):
    aten = torch.ops.aten

    def chosen(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, aten.scalar_tensor(0.0), aten.scalar_tensor(-65504.0))

    def tupled(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (chosen(x),)

    graphs: list[torch.fx.GraphModule] = []

    def compiled_graph(graph: torch.fx.GraphModule, *_: Any, **__: Any) -> Any:
        graphs.append(graph)
        return lambda given: graph(*given)

    monkeypatch.setattr(servers, "compiled_graph", compiled_graph)
    x = torch.randn(3)
    module = traced(tupled, x)
    (given,) = (n for n in module.graph.nodes if n.op == "placeholder")
    given.target = given.name = "in0"  # as regions have them
    region = region_program(module, layouts_of([x]))
    found = servers.baselines(region, chosen, "quick")
    assert len(graphs) == 1
    torch.testing.assert_close(found["compile"](x), chosen(x))
