"""Graphs that differ in names and order alone have one canonical form; others have their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.canonical import canonical
from mirage_py.networks.ir.evaluation import over_field, random_inputs
from mirage_py.networks.ir.graph import Graph
from mirage_py.ugraph.field import FIELDS, FieldOps


def _graph(names: Sequence[str], place: int = 0, *, constant: bool = True) -> Graph:
    """A piece of x w, with the inputs declared in the order of ``names``."""
    b = GraphBuilder()
    shapes = {"x": (2, 3), "w": (3, 4)}
    known = {
        n: b.input(f"in_{n}_{k}", shapes[n], constant=constant and n == "w")
        for k, n in enumerate(names)
    }
    pieces = b.apply_all("split", b.apply("matmul", known["x"], known["w"]), axis=1, sizes=(2, 2))
    return b.build(b.apply("neg", pieces[place]))


def test_names_and_the_order_of_inputs_do_not_matter() -> None:
    one, other = _graph(["x", "w"]), _graph(["w", "x"])
    assert one.digest != other.digest
    (first,), (second,) = canonical([one]), canonical([other])
    assert first.digest == second.digest


def test_what_is_computed_matters_and_what_is_constant() -> None:
    forms = [_graph(["x", "w"]), _graph(["x", "w"], 1), _graph(["x", "w"], constant=False)]
    assert len({canonical([g])[0].digest for g in forms}) == 3


def test_inputs_are_those_of_both_graphs_and_values_stay() -> None:
    one = _graph(["w", "x"])
    b = GraphBuilder()
    w, x = b.input("in_w_0", (3, 4), constant=True), b.input("in_x_1", (2, 3))
    other = b.build(b.apply("matmul", b.apply("neg", x), w))
    first, second = canonical([one, other])
    assert first.inputs == second.inputs
    ops = FieldOps(FIELDS[0], seed=1)
    given = random_inputs(one, ops)
    for old, new in ((one, first), (other, second)):
        (want,), (got,) = over_field(old, given, ops), over_field(new, given[::-1], ops)
        assert np.array_equal(want.p, got.p)
