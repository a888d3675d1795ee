"""What a ranking is held to: families that may be taken, and an end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import pytest
from families import safe_families, stabilize
from unit.search import programs
from unit.search.kernels import in_all_rings

from mirage_py.search.model.cost_model import KernelModel
from mirage_py.search.rank import shortlist as shortlist_module
from mirage_py.search.rank.forms import Form, Sort, sort_of
from mirage_py.search.rank.instance import Instance
from mirage_py.search.rank.instantiate import rank
from mirage_py.search.rank.kernel_choices import KernelRanker
from mirage_py.search.rank.shortlist import (
    Terms,
    best_families,
    likely_families,
    likely_first,
    shortlist,
)
from mirage_py.search.stabilize import safe
from mirage_py.search.stabilize.safe import SafetyScreen
from mirage_py.targets import H200
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.verify.rounding.float_screen import FloatScreen


class _Form(NamedTuple):
    family: str
    name: str


@pytest.fixture(scope="module")
def lora() -> list[UGraph]:
    """Every third one, of each kind some."""
    return [stabilize(f.ugraph) for f in in_all_rings(programs.lora()).families][::3]


@pytest.fixture(scope="module")
def every(lora: list[UGraph]) -> list[Instance]:
    return rank(lora, H200, 999)


@pytest.fixture
def estimates(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One entry for each estimate of a kernel so far."""
    found: list[None] = []
    real = KernelModel.estimate

    def counted(self, options):
        found.append(None)
        return real(self, options)

    monkeypatch.setattr(KernelModel, "estimate", counted)
    return found


def test_what_may_not_be_taken_is_as_if_it_had_not_been_given(lora: list[UGraph]) -> None:
    best = rank(lora, H200, 8)[0].family
    refused = [best.digest, *(u.digest for u in lora[::3])]
    asked: list[str] = []

    def may(family: UGraph) -> bool:
        asked.append(family.digest)
        return family.digest not in refused

    found = rank(lora, H200, 24, terms=Terms(may))
    assert found == rank([u for u in lora if u.digest not in refused], H200, 24)
    assert best.digest in asked
    assert len(dict.fromkeys(asked)) < len(lora)


def test_a_ranking_that_is_late_has_the_best_of_what_it_looked_at(
    lora: list[UGraph], estimates: list[None]
) -> None:
    full = rank(lora, H200, 24)
    of_all = len(estimates)
    estimates.clear()
    in_time = rank(lora, H200, 24, terms=Terms(late=lambda: len(estimates) > of_all // 2))
    assert in_time
    assert len(estimates) < 0.7 * of_all
    assert in_time[0].estimate.time_us <= 1.5 * full[0].estimate.time_us
    estimates.clear()
    assert rank(lora, H200, 24, terms=Terms(late=lambda: True))
    assert len(estimates) < 0.45 * of_all
    estimates.clear()
    assert best_families(lora, KernelRanker(H200), Terms(late=lambda: True))
    of_few = len(estimates)
    estimates.clear()
    assert best_families(lora, KernelRanker(H200))
    assert of_few < 0.8 * len(estimates)


def test_a_late_ranking_goes_on_to_a_form_that_is_not_in_doubt(lora: list[UGraph]) -> None:
    asked: list[Plan] = []

    def doubt(plan: Plan) -> str:
        asked.append(plan)
        return "its formula rounds" if len(asked) < 5 else ""

    def forms(terms: Terms) -> set[tuple[str, str]]:
        return {(i.family.digest, i.name) for i in rank(lora, H200, 999, terms=terms)}

    late = Terms(late=lambda: True)
    assert forms(replace(late, doubt=doubt)) > forms(late)
    assert len(asked) < 10
    ended = forms(replace(late, over=lambda: True, doubt=lambda _: "all of them"))
    assert len(ended) == len(forms(replace(late, over=lambda: True)))


def test_what_leads_by_its_bound_or_by_the_quick_prediction_comes_first(
    lora: list[UGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prediction knows few tilings: attention with scores in memory led by it, before the
    kernel with one pass over the keys."""
    ranker = KernelRanker(H200)
    forms = shortlist(lora, ranker)
    monkeypatch.setattr(ranker, "probe_us", forms.index)
    monkeypatch.setattr(ranker, "bound_us", lambda form: (forms.index(form) - 3) % len(forms))
    order = likely_first(forms, ranker)
    names = [form.name for form in forms]
    first = list(dict.fromkeys(names.index(name) for name in names))
    assert order[: len(first)] == first
    assert len(first) > 2
    turns = [n for n in (0, 3, 1, 4, 2, 5) if n not in first]
    assert order[len(first) : len(first) + len(turns)] == turns
    assert sorted(order) == list(range(len(forms)))


def test_when_it_is_late_every_structure_has_a_plan_that_is_not_in_doubt(
    lora: list[UGraph], every: list[Instance]
) -> None:
    """Attention with normalised keys was served by one kernel at 2.6 times the time of two: the
    first form was in doubt, the second one was of one kernel, and then it was late.
    """
    best_us = every[0].estimate.time_us
    first = {}
    for instance in every:
        first.setdefault(instance.name, instance)
    near = {name for name, i in first.items() if i.estimate.time_us < 1.8 * best_us}
    asked: list[Plan] = []

    def doubt(plan: Plan) -> str:
        asked.append(plan)
        return "its formula rounds" if plan.ugraph == asked[0].ugraph else ""

    found = rank(lora, H200, 60, terms=Terms(late=lambda: bool(asked), doubt=doubt))
    trusted = [i for i in found if i.plan.ugraph != asked[0].ugraph]
    assert len(near) > 2
    assert near <= {i.name for i in trusted}
    listed = {form.name for form in shortlist(lora, KernelRanker(H200))}
    assert len(asked) <= 1 + len(listed)


@pytest.mark.parametrize("backend", ["triton", "auto"])
def test_structures_are_ranked_before_it_is_asked_what_is_in_doubt(
    lora: list[UGraph], monkeypatch: pytest.MonkeyPatch, backend: Literal["triton", "auto"]
) -> None:
    """Doubts of the first forms took the time of a ranking, and of split keys of attention with
    normalised ones only a few tilings were looked at: 29.5 us instead of 18.
    """
    asked: list[Plan] = []
    if backend == "triton":  # with both that of the second is over
        monkeypatch.setattr(KernelRanker, "ranked_quickly", None)
    over = Terms(over=lambda: bool(asked), doubt=lambda plan: asked.append(plan) or "")
    structures = {i.name for i in rank(lora, H200, 60, backend, over)}
    assert len(asked) == 1
    assert len(structures) > 3


def test_plans_of_each_structure_are_told_of_before_others_are_ranked(lora: list[UGraph]) -> None:
    """Nothing was compiled while it was asked what is in doubt, and further forms were ranked."""
    asked: list[Plan] = []
    told: list[tuple[Sequence[Instance], int]] = []
    terms = Terms(
        doubt=lambda plan: asked.append(plan) or "",
        begun=lambda found: told.append((found, len(asked))),
    )
    found = rank(lora, H200, 60, "auto", terms)
    ((first, before),) = told
    assert before == 0 < len(asked)
    assert {i.plan.backend for i in first} == {"cuda"}
    forms = {(i.family.digest, i.name) for i in first}
    names = {name for _, name in forms}
    assert len(forms) == len(names) > 2
    of_cuda = [i for i in found if i.plan.backend == "cuda"]
    assert len({(i.family.digest, i.name) for i in of_cuda}) > len(forms)
    assert of_cuda[0].plan in [i.plan for i in first]


def test_a_ranking_that_is_over_has_a_plan_of_every_structure_near_the_best(
    lora: list[UGraph], estimates: list[None]
) -> None:
    """A ranking that ended in between had no plan with split keys for attention with normalised
    ones, or only with another number of them, which was served at 1.6 times the time of those.
    """
    every = rank(lora, H200, 999)
    of_all = len(estimates)
    estimates.clear()
    first: dict[str, float] = {}
    for i in every:
        first.setdefault(i.name, i.estimate.time_us)
    near = {name for name, time_us in first.items() if time_us < 1.8 * every[0].estimate.time_us}
    found = rank(lora, H200, 60, terms=Terms(late=lambda: True, over=lambda: True))
    assert len(near) > 2
    assert near <= {i.name for i in found}
    assert len(estimates) < 0.4 * of_all


def test_plans_in_doubt_leave_most_seats_to_others(
    lora: list[UGraph], every: list[Instance]
) -> None:
    """They are compiled last: a ranking full of them is of no use."""
    forms = {(i.family.digest, i.name) for i in every[:80]}
    assert len(forms) > 2
    best = rank(lora, H200, 16)

    def doubt(plan: Plan) -> str:
        return "its formula rounds" if len(plan.ugraph.kernels) == 1 else ""

    found = rank(lora, H200, 16, terms=Terms(doubt=doubt))
    doubted = [i for i in found if doubt(i.plan)]
    assert sum(bool(doubt(i.plan)) for i in best) > 4
    assert 0 < len(doubted) <= 4
    assert len(found) == 16


@pytest.mark.parametrize(("seconds", "late", "over"), [(0.01, 24, 8), (0.125, 3, 1)])
def test_after_its_end_a_screen_evaluates_few(
    seconds: float, late: int, over: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few, and fewer where each takes long; one family stood for all structures when it was over,
    and of those of attention with normalised keys none had split ones.
    """
    families = in_all_rings(programs.lora()).families
    every = SafetyScreen().stable(families)
    evaluated: list[UGraph] = []

    def fault(_self: FloatScreen, family: UGraph) -> str:
        evaluated.append(family)
        return "spoiled" if len(evaluated) == 1 else ""

    monkeypatch.setattr(FloatScreen, "fault", fault)
    monkeypatch.setattr(safe.time, "monotonic", lambda: seconds * len(evaluated))
    for screen, most in (
        (SafetyScreen(late=lambda: True), late),
        (SafetyScreen(late=lambda: True, over=lambda: True), over),
    ):
        evaluated.clear()
        assert len(screen.stable(families)) >= 1
        assert [u for u in every if screen.passes(u)] == list(every[1 : 1 + most])
        assert len(evaluated) == 1 + most
        assert screen.found().faults == ("spoiled",)
    monkeypatch.undo()
    assert len(safe_families(families).ugraphs) > 1


def test_what_is_known_is_listed_when_it_is_late_too(lora: list[UGraph]) -> None:
    """Families that the screen refused were replaced by few others, and two kernels were lost."""
    ranker = KernelRanker(H200)
    in_time = shortlist(lora, ranker)
    late = shortlist(lora, ranker, Terms(late=lambda: True))
    assert {form.name for form in late} == {form.name for form in in_time}
    alone = shortlist(lora, KernelRanker(H200), Terms(late=lambda: True))
    assert len(alone) < len(in_time)


@pytest.mark.parametrize("terms", [Terms(late=lambda: True), Terms(over=lambda: True)])
def test_what_fits_nowhere_takes_no_place_of_what_does_when_it_is_late(
    lora: list[UGraph], terms: Terms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best bounds of attention with normalised keys are of kernels that fit nowhere: late
    rankings had no split keys, which are the fastest.
    """
    probes: list[str] = []
    real = KernelRanker.probe_us

    def probe(ranker: KernelRanker, form: Form) -> float:
        if form.kind == "split" and form.family.digest not in probes:
            probes.append(form.family.digest)
        is_first = form.kind == "split" and form.family.digest in probes[:3]
        return math.inf if is_first else real(ranker, form)

    monkeypatch.setattr(KernelRanker, "probe_us", probe)
    monkeypatch.setattr(KernelRanker, "is_probed", lambda *_: False)
    assert "split" in {form.kind for form in shortlist(lora, KernelRanker(H200), terms)}
    assert len(probes) > 3


def test_of_many_families_of_a_sort_those_with_the_best_bounds_are_likely(
    lora: list[UGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = KernelRanker(H200)
    assert likely_families(lora, ranker) == lora
    monkeypatch.setattr(shortlist_module, "_LIKELY_PER_SORT", 2)
    by_sort: dict[Sort, list[UGraph]] = {}
    for family in lora:
        by_sort.setdefault(sort_of(family), []).append(family)

    def bound_us(family: UGraph) -> float:
        return ranker.bound_us(ranker.form(family, ranker.splits(family)[0]))

    best = [f for of_sort in by_sort.values() for f in sorted(of_sort, key=bound_us)[:2]]
    assert len(best) < len(lora) / 2
    assert likely_families(lora, ranker) == [f for f in lora if f in best]


def test_each_number_of_splits_has_families_that_are_not_hopeless_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Attention over 16 heads had no CUDA plan with the keys in two or four parts, among which the
    fastest are: the two families that led with eight parts take 200 us with two.
    """
    ranker = KernelRanker(H200)
    forms = {f: _Form(f, "x8") for f in "abcd"}
    probes_us = {"a": 200.0, "b": 50.0, "c": 22.0, "d": 23.0}
    monkeypatch.setattr(
        shortlist_module, "_at_other_splits", lambda form, _: [_Form(form.family, "x2")]
    )
    monkeypatch.setattr(ranker, "bound_us", lambda _: 5.0)
    monkeypatch.setattr(ranker, "probe_us", lambda form: probes_us[form.family])
    probed = [(30.0 + n, forms[f]) for n, f in enumerate("abcd")]
    found = [*shortlist_module._with_all_splits(probed, 10.0, ranker, 1)]
    assert found == [(22.0, _Form("c", "x2"))]
    monkeypatch.setattr(ranker, "bound_us", lambda form: 31.0 if form.family == "c" else 5.0)
    found = [*shortlist_module._with_all_splits(probed, 10.0, ranker, 2)]
    assert found == [(23.0, _Form("d", "x2"))]
    asked = [probed[0]] * 4 + [probed[3]]
    assert not [*shortlist_module._with_all_splits(asked, 10.0, ranker, 1)]
