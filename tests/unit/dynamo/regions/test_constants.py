"""Inputs that no kernel in front of a region writes."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from mirage_py.dynamo.regions.constants import with_constants
from mirage_py.dynamo.regions.region_graph import RegionGraph, region_graph
from mirage_py.dynamo.regions.regions import cut
from mirage_py.targets import target

Trace = Callable[..., torch.fx.GraphModule]


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, device="meta")


def regions_of(module: torch.fx.GraphModule, *written: int) -> list[RegionGraph]:
    found = cut(module.graph, target("h200"), rest_fuses=True)
    graphs = [region_graph(r, found.facts) for r in found.regions]
    return with_constants(graphs, found, written)


def constants(graphs: list[RegionGraph]) -> list[list[str]]:
    return [[g.inputs[n].name for n in g.constants] for g in graphs]


def two(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    return F.silu(x @ w.t()) @ v + r


def traced_two(traced: Trace) -> torch.fx.GraphModule:
    return traced(two, half(4, 4096), half(8192, 4096), half(8192, 4096), half(4, 4096))


def test_weights_of_a_region_behind_another_one(traced: Trace) -> None:
    module = traced_two(traced)
    v, r = (n.name for n in module.graph.find_nodes(op="placeholder")[2:])
    first, second = regions_of(module)
    assert constants([first, second]) == [[], [v, r]]
    assert second.inputs[0] in first.outputs
    # They belong to what a region is.
    assert second.key.split("-")[1:] == ["1", "2"]
    assert "-" not in first.key


def test_what_the_graph_writes_is_none(traced: Trace) -> None:
    module = traced_two(traced)
    v, r = module.graph.find_nodes(op="placeholder")[2:]
    assert constants(regions_of(module, 2)) == [[], [r.name]]
    assert constants(regions_of(module, 3)) == [[], [v.name]]
    found = cut(module.graph, target("h200"), rest_fuses=True)
    graphs = [region_graph(region, found.facts) for region in found.regions]
    with module.graph.inserting_before(module.graph.output_node()):
        module.graph.call_function(torch.ops.aten.zero_.default, (v,))
    assert constants(with_constants(graphs, found, ())) == [[], [r.name]]


def test_regions_of_one_content_have_what_all_of_them_have(traced: Trace) -> None:
    """The first layer lies behind no region: what wrote its weights may just have ended."""

    def layers(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        for w in weights:
            x = x + x @ w
        return x

    found = regions_of(traced(layers, half(4, 4096), *(half(4096, 4096) for _ in range(3))))
    assert len(found) == 3
    assert len({g.key for g in found}) == 1
    assert constants(found) == [[], [], []]
