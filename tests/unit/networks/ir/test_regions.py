"""Regions of a graph, and other graphs in their place."""

from __future__ import annotations

import pytest
from graph_regions import with_replacement

from mirage_py.errors import InputError
from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.graph import Graph, Value
from mirage_py.networks.ir.regions import Region


@pytest.fixture
def graph() -> Graph:
    b = GraphBuilder()
    x, w = b.input("x", (2, 3)), b.input("w", (3, 3), constant=True)
    y = b.apply("matmul", x, b.apply("neg", w))  # 1, of 0
    left, right = b.apply_all("split", b.apply("relu", y), axis=1, sizes=(1, 2))  # 3, of 2
    return b.build(b.apply("concat", right, left, axis=1), y)  # 4


def test_a_region_has_what_it_reads_and_what_is_read(graph: Graph):
    region = Region.of(graph, [3, 2])
    assert region.nodes == (2, 3)
    assert region.inputs == (Value(1),)
    assert region.outputs == (Value(3), Value(3, 1))
    alone = region.graph(graph)
    assert [entry.name for entry in alone.inputs] == ["v0"]
    assert alone.constants == ()
    assert Region.of(graph, [1]).graph(graph).constants == ("v1",)


def test_a_region_in_its_own_place_changes_nothing(graph: Graph):
    for nodes in ([0], [1], [2, 3], [0, 1, 2, 3, 4]):
        region = Region.of(graph, nodes)
        again = with_replacement(graph, region, region.graph(graph))
        assert sorted(n.operator for n in again.nodes) == sorted(n.operator for n in graph.nodes)
        assert again.output_types == graph.output_types
        assert again.constants == graph.constants


def test_what_does_not_fit_is_refused(graph: Graph):
    b = GraphBuilder()
    wrong = b.build(b.apply("relu", b.input("v", (2, 2))))
    with pytest.raises(InputError, match="results of other types"):
        with_replacement(graph, Region.of(graph, [2]), wrong)
    # Between its two nodes is one that is outside.
    around = Region.of(graph, [1, 3])
    with pytest.raises(InputError, match="computed from its results"):
        with_replacement(graph, around, around.graph(graph))
