"""Weights of keys and values absorbed: equal over a field, where it pays, only where it fits."""

from __future__ import annotations

import numpy as np
import pytest

from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.evaluation import over_field, random_inputs
from mirage_py.networks.ir.graph import Graph, Value
from mirage_py.pipeline.networks.network_evidence import check_parts
from mirage_py.search.networks.optimize_network import NetworkResult, optimize_network
from mirage_py.search.networks.saturate import Limits
from mirage_py.targets import target
from mirage_py.ugraph.field import FIELDS, FieldOps
from mirage_py.ugraph.ir.dtypes import BF16

_KEYS = "the weight of keys onto queries, head by head"
_VALUES = "the weight of values onto what heads have seen, head by head"
_HEADS, _SIZE, _SHARED = 8, 64, 256


def _attention(
    queries: int,
    places: int,
    *,
    steps: tuple[tuple[int, ...], ...] = ((0, 2, 1, 3), (0, 1, 3, 2)),
    values: tuple[int, ...] = (0, 2, 1, 3),
    square: bool = False,
) -> Graph:
    """Attention without a softmax; keys go through transposes of ``steps``. With ``square`` heads
    are as many as places, so that a wrong transpose has the shapes, too.
    """
    b = GraphBuilder()
    heads = places if square else _HEADS
    q = b.input("q", (2, heads, queries, _SIZE), BF16)
    x = b.input("x", (2, places, _SHARED), BF16)

    def split(name: str) -> Value:
        w = b.input(name, (_SHARED, heads * _SIZE), BF16, constant=True)
        return b.apply("reshape", b.apply("matmul", x, w), shape=(2, places, heads, _SIZE))

    keys, seen = split("wk"), b.apply("transpose", split("wv"), perm=values)
    for perm in steps:
        keys = b.apply("transpose", keys, perm=perm)
    scores = b.apply("relu", b.apply("matmul", q, keys))
    return b.build(b.apply("matmul", scores, seen))


def _optimized(graph: Graph) -> NetworkResult:
    return optimize_network(
        graph, target("h200"), substitutions=(), limits=Limits(rounds=2, solver=0.5)
    )


@pytest.mark.covering(1)
@pytest.mark.parametrize("steps", [((0, 2, 1, 3), (0, 1, 3, 2)), ((0, 2, 3, 1),)])
@pytest.mark.parametrize("queries", [1, 3])
def test_few_queries_read_the_shared_tensor(queries: int, steps: tuple[tuple[int, ...], ...]):
    graph = _attention(queries, 4096, steps=steps)
    found = _optimized(graph)
    assert {_KEYS, _VALUES} <= {s.rule for s in found.steps}
    evidence = check_parts(found.parts)
    assert evidence.equal
    assert evidence.tested == evidence.parts > 0


def test_values_stay():
    graph = _attention(2, 4096)
    found = _optimized(graph)
    assert found.graph is not graph
    ops = FieldOps(FIELDS[0], seed=1)
    given = random_inputs(graph, ops)
    (want,), (got,) = (over_field(g, given, ops) for g in (graph, found.graph))
    assert want.p.any()
    assert np.array_equal(want.p, got.p)


def test_many_queries_have_keys_and_values():
    rules = {s.rule for s in _optimized(_attention(4096, 512)).steps}
    assert not rules & {_KEYS, _VALUES}


def test_heads_that_are_arranged_otherwise_are_left():
    graph = _attention(1, 512, steps=((0, 1, 3, 2),), values=(0, 1, 2, 3), square=True)
    assert not {s.rule for s in _optimized(graph).steps} & {_KEYS, _VALUES}
