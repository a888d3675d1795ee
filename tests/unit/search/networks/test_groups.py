"""Grouped convolutions of fewer groups: equal element by element, and chosen where costs say so."""

from __future__ import annotations

import numpy as np
import pytest

from mirage_py.errors import InputError
from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.evaluation import over_field, random_inputs
from mirage_py.networks.ir.graph import Graph
from mirage_py.search.networks.groups import fewer_groups, merged_weight
from mirage_py.search.networks.optimize_network import optimize_network
from mirage_py.search.networks.saturate import Limits
from mirage_py.targets import target
from mirage_py.ugraph.field import FIELDS, FieldOps
from mirage_py.ugraph.ir.dtypes import BF16

_CHANNELS, _GROUPS = 24, 12


def _convolution(spatial: int, merged: int) -> Graph:
    """A convolution of twelve groups of two channels, read by three filters each."""
    b = GraphBuilder()
    x = b.input("x", (2, _CHANNELS, *(5,) * spatial))
    w = b.input("w", (36, _CHANNELS // _GROUPS, *(3,) * spatial), constant=True)
    if merged > 1:
        w = merged_weight(b.apply, w, b.type_of(w).shape, _GROUPS, merged)
    attributes = {"padding": 1, "stride": 2, "groups": _GROUPS // merged}
    return b.build(b.apply(f"conv{spatial}d", x, w, **attributes))


@pytest.mark.parametrize(("spatial", "merged"), [(1, 2), (1, 12), (2, 3), (2, 4), (3, 2)])
def test_merged_groups_are_the_same_convolution(spatial: int, merged: int) -> None:
    ops = FieldOps(FIELDS[0], seed=merged)
    apart, together = _convolution(spatial, 1), _convolution(spatial, merged)
    given = random_inputs(apart, ops)
    (want,), (got,) = (over_field(graph, given, ops) for graph in (apart, together))
    assert want.p.any()
    assert np.array_equal(want.p, got.p)


def test_only_whole_groups_are_merged() -> None:
    with pytest.raises(InputError, match="12 groups are no multiple of 5"):
        _convolution(1, 5)


def test_costs_choose_the_width() -> None:
    b = GraphBuilder()
    x = b.input("x", (64, 128, 56, 56), BF16)
    w = b.input("w", (128, 4, 3, 3), BF16, constant=True)
    graph = b.build(b.apply("conv2d", x, w, padding=1, groups=32))
    # Channels of a group that fill a step of tensor cores make more products, and take less time.
    found = optimize_network(
        graph, target("h200"), substitutions=(), limits=Limits(rounds=1, solver=0.2)
    )
    (node,) = [n for n in found.graph.nodes if n.operator == "conv2d"]
    assert node["groups"] < 32
    assert found.speedup > 1.05
    assert [s.rule for s in found.steps] == [
        f"{32 // node['groups']} groups of a convolution as one"
    ]
    assert {s.name for s in fewer_groups()} >= {s.rule for s in found.steps}
