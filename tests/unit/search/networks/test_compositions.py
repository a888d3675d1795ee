"""Two linear operators in a row as one convolution: equal over a field, and only where they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.evaluation import over_field, random_inputs
from mirage_py.networks.ir.graph import Graph
from mirage_py.search.networks.optimize_network import NetworkResult, optimize_network
from mirage_py.search.networks.saturate import Limits
from mirage_py.targets import target
from mirage_py.ugraph.field import FIELDS, FieldOps
from mirage_py.ugraph.ir.dtypes import BF16

_SEPARABLE = "depthwise and pointwise convolution as one"
_POOLED = "average pool and pointwise convolution as one"


def _separable(groups: int = 6, point: int = 1, **attributes: Any) -> Graph:
    b = GraphBuilder()
    x = b.input("x", (2, 6, 7, 5), BF16)
    deep = b.input("v", (6, 6 // groups, 3, 5), BF16, constant=True)
    w = b.input("w", (4, 6, point, point), BF16, constant=True)
    between = b.apply("conv2d", x, deep, groups=groups, padding=(1, 2), **attributes)
    return b.build(b.apply("conv2d", between, w))


def _pooled(**attributes: Any) -> Graph:
    b = GraphBuilder()
    x = b.input("x", (2, 6, 7, 5), BF16)
    w = b.input("w", (4, 6, 1, 1), BF16, constant=True)
    return b.build(b.apply("conv2d", b.apply("avg_pool2d", x, kernel=(3, 2), **attributes), w))


def _optimized(graph: Graph) -> NetworkResult:
    return optimize_network(
        graph, target("h200"), substitutions=(), limits=Limits(rounds=1, solver=0.2)
    )


@pytest.mark.parametrize(
    ("graph", "rule"),
    [
        (_separable(), _SEPARABLE),
        (_separable(stride=2, dilation=(1, 2)), _SEPARABLE),
        (_pooled(stride=(1, 2), padding=1), _POOLED),
        (_pooled(count_padding=0, stride=1), _POOLED),
    ],
)
def test_one_convolution_computes_both(graph: Graph, rule: str) -> None:
    found = _optimized(graph)
    assert [s.rule for s in found.steps] == [rule]
    calls = zip(found.graph.nodes, found.graph.is_constant, strict=True)
    assert [n.operator for n, known in calls if not known] == ["conv2d"]
    ops = FieldOps(FIELDS[0], seed=1)
    given = random_inputs(graph, ops)
    (want,), (got,) = (over_field(g, given, ops) for g in (graph, found.graph))
    assert want.p.any()
    assert np.array_equal(want.p, got.p)


@pytest.mark.parametrize(
    "graph",
    [
        _separable(groups=2),
        _separable(point=3),
        _pooled(padding=1, count_padding=0, stride=1),
        _pooled(ceil=1, stride=2),
    ],
)
def test_what_is_none_is_left(graph: Graph) -> None:
    # Groups of three channels may be one, which is another substitution.
    assert not {_SEPARABLE, _POOLED} & {s.rule for s in _optimized(graph).steps}
