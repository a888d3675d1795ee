"""The e-graph of an operator graph: congruence, types, patterns with several roots."""

from __future__ import annotations

import pytest

from mirage_py.errors import InputError
from mirage_py.networks.operators import TensorType, operator
from mirage_py.search.networks.egraph import INPUT, EGraph, ENode, PatternNode


def leaf(graph: EGraph, name: str, *shape: int) -> int:
    return graph.add(ENode(INPUT, (("name", name),), ()), [TensorType(shape)])


def node(name: str, *children: int, **attributes: object) -> ENode:
    return ENode(name, operator(name).normal(attributes), children)


def test_congruent_members_become_one_class():
    graph = EGraph()
    a, b = leaf(graph, "a", 2, 2), leaf(graph, "b", 2, 2)
    one, other = graph.add(node("relu", a)), graph.add(node("relu", b))
    graph.rebuild()
    assert graph.find(one) != graph.find(other)
    assert graph.union(a, b)
    graph.rebuild()
    assert graph.find(one) == graph.find(other)
    assert graph.nodes == 3


def test_classes_of_other_types_are_not_united():
    graph = EGraph()
    assert not graph.union(leaf(graph, "a", 2), leaf(graph, "b", 3))


def test_what_has_no_shape_is_refused():
    graph = EGraph()
    with pytest.raises(InputError, match="columns"):
        graph.add(node("matmul", leaf(graph, "a", 2, 3), leaf(graph, "b", 2, 3)))


def test_attributes_tell_members_apart():
    graph = EGraph()
    x = leaf(graph, "x", 4)
    one, other = (graph.add(node("scale", x, factor=f)) for f in (2.0, 3.0))
    graph.rebuild()
    assert graph.find(one) != graph.find(other)


def test_a_pattern_of_two_roots_matches_pairs_that_share_an_operand():
    graph = EGraph()
    x, y = leaf(graph, "x", 2, 2), leaf(graph, "y", 2, 2)
    w, v = leaf(graph, "w", 2, 2), leaf(graph, "v", 2, 2)
    one, two, three = (graph.add(node("matmul", *pair)) for pair in ((x, w), (x, v), (y, v)))
    graph.watch(
        (PatternNode("matmul", ("x", "w"), ("a",)), PatternNode("matmul", ("x", "v"), ("b",)))
    )
    (matches,) = graph.rebuild()
    pairs = [(m.classes["a"], m.classes["b"]) for m in matches]
    assert sorted(pairs) == [(one, one), (one, two), (two, one), (two, two), (three, three)]


def test_results_of_one_operator_are_values_of_their_own():
    graph = EGraph()
    parts = graph.results(node("split", leaf(graph, "x", 6), axis=0, sizes=(2, 4)))
    assert [graph.type(p).shape for p in parts] == [(2,), (4,)]
    graph.watch((PatternNode("split", ("x",), ("a", "b")),))
    (matches,) = graph.rebuild()
    assert [(m.classes["a"], m.classes["b"]) for m in matches] == [parts]
    assert matches[0].attributes[0]["sizes"] == (2, 4)
