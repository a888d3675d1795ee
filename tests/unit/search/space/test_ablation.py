"""The search with single techniques turned off: it finds the same, and looks at more."""

from __future__ import annotations

import itertools
from dataclasses import replace
from itertools import product

import pytest
from unit.search import programs

from mirage_py.axioms.saturation.saturate import saturate
from mirage_py.reasons import Code, reason
from mirage_py.search.closure.closure import _with_member
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.search.extract.extract import ExtractionLimits
from mirage_py.search.space.abstraction import abstract
from mirage_py.search.space.no_pruning import without_pruning

EVERYTHING = ExtractionLimits(derivations=1000, alike=1000, slack=1e9, expansions=100_000)
BASE = SearchLimits(
    rings=("factored",), max_kernels=1, max_tensors=10**6, max_operators=3, extraction=EVERYTHING
)
NO_CLASSES = replace(BASE, pruning="none")
NO_MERGING = replace(BASE, merging="structure")


def scaled_sum():
    s = programs.Spec("scaled_sum", b=8, d=64)
    scaled = s.b.apply("mul", s.load("X", "bd"), s.load("C", "b"))
    s.output("Y", s.b.sum(scaled, "d"), "b")
    return s.b.build()


def normalised_row():
    s = programs.Spec("normalised_row", b=8, d=64)
    x = s.load("X", "bd")
    s.output("Y", s.b.apply("div", x, s.b.sum(x, "d")), "bd")
    return s.b.build()


@pytest.mark.parametrize("make", [scaled_sum, normalised_row])
@pytest.mark.parametrize("limits", [NO_CLASSES, NO_MERGING], ids=["no classes", "no merging"])
def test_nothing_is_lost_and_more_is_looked_at(make, limits):
    whole, part = search(make(), limits=BASE), search(make(), limits=limits)
    digests = {f.ugraph.digest for f in part.families}
    assert whole.families
    assert {f.ugraph.digest for f in whole.families} <= digests
    assert part.counters.candidates >= whole.counters.candidates
    assert part.exhausted


def test_without_classes_there_is_much_more_to_look_at():
    pruned, every = (search(normalised_row(), limits=l).counters for l in (BASE, NO_CLASSES))
    assert every.candidates > 20 * pruned.candidates


def test_without_merging_equal_values_stay_apart():
    merged, apart = (search(scaled_sum(), limits=l).counters for l in (BASE, NO_MERGING))
    assert apart.tensors > merged.tensors
    assert apart.candidates > merged.candidates


@pytest.mark.parametrize("limits", [BASE, NO_CLASSES, NO_MERGING])
def test_the_bound_on_operators_refuses_by_its_name(limits):
    # Without a loop the sum is scaled: two operators.
    assert search(scaled_sum(), limits=replace(limits, max_operators=2)).families
    result = search(scaled_sum(), limits=replace(limits, max_operators=1))
    assert result.families == ()
    assert result.counters.pruned[reason(Code.MAX_OPERATORS, 1)] > 0


def test_a_bound_that_is_wide_enough_changes_nothing():
    program = programs.rmsnorm_matmul()
    bounded = search(program, limits=SearchLimits(rings=("factored",), max_operators=30))
    free = search(program, limits=SearchLimits(rings=("factored",)))
    assert {f.ugraph.digest for f in bounded.families} == {f.ugraph.digest for f in free.families}


@pytest.mark.parametrize("kernels", [1, 2])
def test_a_closure_without_end_stops_when_told(kernels):
    limits = replace(NO_CLASSES, max_operators=None, max_kernels=kernels, max_tensors=10**9)
    asked = itertools.count(1)
    result = search(programs.row_softmax(), limits=limits, should_stop=lambda: next(asked) > 5)
    # Each level of what is at work asks once more on its way out.
    assert next(asked) < 50
    assert result.stopped
    assert not result.exhausted
    assert result.counters.candidates > 0


def test_what_was_stopped_is_no_part_of_the_next_search():
    program, limits = programs.attention(), SearchLimits(rings=("factored",))
    expected = [f.ugraph.digest for f in search(program, limits=limits).families]
    for looks in range(0, 40, 3):
        left = iter(range(looks))
        search(program, seed=5, limits=limits, should_stop=lambda it=left: next(it, None) is None)
    found = search(program, seed=5, limits=limits)
    assert [f.ugraph.digest for f in found.families] == expected
    assert found.exhausted


def test_one_class_knows_every_combination():
    form = abstract(programs.row_softmax())
    table = without_pruning(saturate(form.roots, form.leaf_axes, axes=form.axes))
    assert table.classes == 1
    assert table.lookup("div", "", (0, 0)) == 0
    assert table.lookup("sum", "n.l", (0,)) == table.lookup("sum", "n.t", (0,)) == 0
    assert table.lookup("log", "", (0,)) is None  # no operator of the program
    assert table.lookup("leaf", "X[b, n]", ()) == 0


@pytest.mark.parametrize("places", [(True, True, False), (False, True, True), (True, False, True)])
def test_choices_with_a_member_are_those_of_the_product(places):
    choices = [(4, 7, 9), (7, 4, 5), (9, 4, 7)]
    at = [n for n, place in enumerate(places) if place]
    expected = [args for args in product(*choices) if any(args[n] == 7 for n in at)]
    assert list(_with_member(7, choices, places)) == expected
