from __future__ import annotations

import random

import pytest

from mirage_py.axioms.saturation.saturate import saturate
from mirage_py.axioms.terms.class_table import Row, build, renumber
from mirage_py.axioms.terms.term import Term, const, leaf, reduce, size

X, W = leaf("X"), leaf("W")
K = ("k.l", "k.t")
LEAVES = {"X": ("b.t", *K), "W": (*K, "n.t")}
AXES = ("b.t", *K, "n.t")
ROOT = reduce("sum", K, X * const("0.50") * W) / size("k")


@pytest.fixture(scope="module")
def table():
    return saturate([ROOT, X], LEAVES, axes=AXES)


def test_lookup_is_class_of_one_step(table):
    x, w = table.class_of(X), table.class_of(W)
    product = table.lookup("mul", "", (x, w))
    assert product == table.class_of(X * W) == table.class_of(W * X)
    assert table.lookup("add", "", (x, w)) is None
    assert table.lookup("sum", "k.t", (product,)) is not None
    assert table.lookup("sum", "b.t", (product,)) is None
    assert table.lookup("no such operator", "", (x,)) is None


def test_constants_are_found_under_every_spelling(table):
    assert table.lookup("const", "0.5", ()) is not None
    assert table.lookup("const", "5e-1", ()) == table.lookup("const", "0.5", ())
    assert table.lookup("const", "0.6", ()) is None


def test_roots_are_in_the_order_of_the_program(table):
    assert table.roots == (table.class_of(ROOT), table.class_of(X))


def test_rows_are_sorted_distinct_and_indexed(table):
    assert list(table.rows) == sorted(table.rows, key=lambda r: (r.result, r.op, r.attr, r.args))
    assert len(table.index) == table.size == len(table.rows)
    assert all(table.lookup(r.op, r.attr, r.args) == r.result for r in table.rows)
    assert [c for c in range(table.classes) if not any(r.result == c for r in table.rows)] == []


def test_by_argument_lists_what_a_class_can_become(table):
    for class_ in range(table.classes):
        assert table.by_argument[class_] == tuple(r for r in table.rows if class_ in r.args)


def test_dependence_is_in_the_order_of_the_axes(table):
    assert table.depends(table.class_of(X * W)) == AXES
    assert table.depends(table.class_of(Term("sum", "k.t", (X * W,)))) == ("b.t", "k.l", "n.t")
    assert table.depends(table.class_of(ROOT)) == ("b.t", "n.t")
    assert table.depends(table.class_of(size("k"))) == ()


def test_numbers_depend_on_structure_only(table):
    names = list(range(100, 100 + table.classes))
    random.Random(5).shuffle(names)
    scrambled = [
        (r.op, r.attr, tuple(names[a] for a in r.args), names[r.result]) for r in table.rows
    ]
    random.Random(6).shuffle(scrambled)
    dependence = {names[c]: axes for c, axes in enumerate(table.dependence)}
    again = build(
        scrambled, dependence, [ROOT, X], ring="factored", rounds=table.rounds, bound="none"
    )
    assert again == table


def test_renumber_reaches_classes_that_contain_themselves():
    # Class 7 is x and x * 1: a cycle with a finite term.
    rows = [("mul", "", (7, 3), 7), ("leaf", "x", (), 7), ("const", "1", (), 3)]
    assert renumber(rows) == {3: 0, 7: 1}


def test_rows_print_as_facts(table):
    assert table.rows[0] == Row("const", "0.5", (), 0)
