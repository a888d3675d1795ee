"""The checker refuses every derivation that is not one: steps are changed one by one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_table import term_variables
from nightly import NIGHTLY
from replayed import goal_fault

from mirage_py.axioms.laws.registry import all_laws
from mirage_py.axioms.proof.find import find_proof
from mirage_py.axioms.proof.goal import Claim, Goal
from mirage_py.axioms.proof.proof_laws import laws_of_proofs
from mirage_py.axioms.proof.steps import (
    EXTENTS,
    VERSION,
    Derivation,
    Proof,
    Step,
    read_proof,
    term_at,
    with_term_at,
)
from mirage_py.axioms.terms.law import Law, axis_variables
from mirage_py.axioms.terms.term import REDUCTIONS, Term, apply, const, leaf, reduce, size, subterms
from mirage_py.errors import FormatError

X, G, W = (leaf(n) for n in "XGW")
K = ("k.l", "k.t")
LEAVES = {"X": ("b", *K), "G": K, "W": (*K, "n")}
AXES = ("b", *K, "n")
LAWS = {law.name: law for law in laws_of_proofs()}


def total(x: Term) -> Term:
    return reduce("sum", K, x)


def norm() -> Term:
    return apply("sqrt", total(apply("square", X)) / size("k") + const("1e-06"))


@cache
def norms() -> tuple[Goal, Proof]:
    """RMSNorm and a product, fused, with a second output."""
    fused = total(X * (W * G)) / norm()
    claims = (Claim("Y", total(X / norm() * G * W), fused), Claim("Z", X * G, G * X))
    return found(Goal(claims, AXES, LEAVES))


@cache
def variances() -> tuple[Goal, Proof]:
    mean = total(X) / size("k")
    pair = total(apply("square", X - mean)), total(X * X) - mean * total(X)
    return found(Goal((Claim("V", *pair),), AXES, LEAVES))


def found(goal: Goal) -> tuple[Goal, Proof]:
    proof = find_proof(goal)
    assert proof is not None
    return goal, proof


GOALS = {"norms": norms, "variances": variances}


def with_steps(proof: Proof, number: int, steps: tuple[Step, ...]) -> Proof:
    changed = replace(proof.derivations[number], steps=steps)
    before, after = proof.derivations[:number], proof.derivations[number + 1 :]
    return Proof((*before, changed, *after))


@pytest.mark.parametrize("name", GOALS)
def test_what_was_found_holds(name: str):
    goal, proof = GOALS[name]()
    assert goal_fault(goal, proof) == ""
    assert proof.length > 5


# --- corruptions ---------------------------------------------------------------------------------


def other_law(step: Step) -> Iterator[Step]:
    # Of the laws another sixteenth for each kind of step: all of them have their turn.
    some = list(LAWS)[sum(map(ord, step.law)) % 16 :: 16]
    yield from (replace(step, law=name) for name in (*some, EXTENTS, "sums.wrong"))


def other_place(step: Step) -> Iterator[Step]:
    yield replace(step, at=(*step.at, 0))
    yield replace(step, at=(*step.at, 7))
    if step.at:
        yield replace(step, at=step.at[:-1])
        yield replace(step, at=(*step.at[:-1], 1 - step.at[-1]))


def other_direction(step: Step) -> Iterator[Step]:
    yield replace(step, forward=not step.forward)


def other_meaning(step: Step) -> Iterator[Step]:
    for name in step.terms:
        yield replace(step, terms={**step.terms, name: const("3")})
        yield replace(step, terms={k: t for k, t in step.terms.items() if k != name})
    for name in step.axes:
        yield replace(step, axes={**step.axes, name: "n"})
        yield replace(step, axes={**step.axes, name: "nowhere"})
        yield replace(step, axes={k: a for k, a in step.axes.items() if k != name})


def other_ends(step: Step) -> Iterator[Step]:
    yield replace(step, before=step.after, after=step.before)
    yield replace(step, after=step.before)
    for t in list(subterms(step.after))[:4]:
        yield replace(step, after=t)
    yield replace(step, after=with_term_at(step.after, step.at, const("3")))


def says_the_same(step: Step, was: Step) -> bool:
    """Whether the step is still true: what commutes fits in both directions, for instance."""
    law = LAWS.get(step.law)
    if law is None or (step.before, step.after) != (was.before, was.after):
        return False
    try:
        sides = [instance(side, step) for side in (law.left, law.right)]
        old = term_at(step.before, step.at)
    except (KeyError, IndexError):
        return False
    sides = sides if step.forward else sides[::-1]
    return old == sides[0] and with_term_at(step.before, step.at, sides[1]) == step.after


def instance(pattern: Term, step: Step) -> Term:
    if pattern.op == "var":
        return step.terms[pattern.attr]
    is_axis = pattern.op in REDUCTIONS or pattern.op == "size"
    attr = step.axes[pattern.attr] if is_axis else pattern.attr
    return Term(pattern.op, attr, tuple(instance(a, step) for a in pattern.args))


@pytest.mark.covering(1)
@pytest.mark.parametrize("name", GOALS)
@pytest.mark.parametrize(
    "corrupt", [other_law, other_place, other_direction, other_meaning, other_ends]
)
def test_a_changed_step_is_refused(name: str, corrupt: Callable[[Step], Iterator[Step]]):
    goal, proof = GOALS[name]()
    refused = 0
    for number, derivation in enumerate(proof.derivations):
        for place, step in enumerate(derivation.steps):
            # Of the long proof every third step, and at night all.
            if name == "variances" and place % 3 and not NIGHTLY:
                continue
            for wrong in corrupt(step):
                if wrong == step or says_the_same(wrong, step):
                    continue
                steps = (*derivation.steps[:place], wrong, *derivation.steps[place + 1 :])
                assert goal_fault(goal, with_steps(proof, number, steps)), (step, wrong)
                refused += 1
    assert refused >= proof.length // 3


@pytest.mark.parametrize("name", GOALS)
def test_a_dropped_a_doubled_and_a_swapped_step_are_refused(name: str):
    goal, proof = GOALS[name]()
    steps = proof.derivations[0].steps
    for place in range(len(steps)):
        dropped = (*steps[:place], *steps[place + 1 :])
        doubled = (*steps[: place + 1], *steps[place:])
        swapped = (*steps[:place], *steps[place : place + 2][::-1], *steps[place + 2 :])
        for wrong in (dropped, doubled, swapped):
            if wrong != steps:
                assert goal_fault(goal, with_steps(proof, 0, wrong))
    assert "the last step does not lead" in goal_fault(goal, with_steps(proof, 0, steps[:-1]))


def test_another_goal_is_refused():
    goal, proof = norms()
    assert "begin with the program's" in goal_fault(variances()[0], with_output(proof, "V"))
    y, z = goal.claims
    mean = replace(y, program=y.program / size("k"))
    assert "does not begin" in goal_fault(replace(goal, claims=(mean, z)), proof)
    other = replace(y, ugraph=y.ugraph / size("k"))
    assert "does not end" in goal_fault(replace(goal, claims=(other, z)), proof)
    assert "about the outputs Y" in goal_fault(goal, Proof(proof.derivations[:1]))
    assert "about the outputs Z, Y" in goal_fault(goal, Proof(proof.derivations[::-1]))
    assert "of nothing" in goal_fault(goal, Proof(()))


def with_output(proof: Proof, name: str) -> Proof:
    return Proof((replace(proof.derivations[0], output=name),))


# --- side conditions -----------------------------------------------------------------------------


def stated(law: Law, free: bool) -> tuple[Goal, Proof]:
    """One step of a law, on leaves that depend on no axis of it, or on all of them."""
    axes = axis_variables(law)
    own = ("other",) if free else (*axes, "other")
    terms = {v: size("other") if v in law.sizes and free else leaf(v) for v in term_variables(law)}
    bound = {axis: axis for axis in axes}
    blank = Step(law.name, True, (), terms, bound, const("0"), const("0"))
    left, right = (instance(side, blank) for side in (law.left, law.right))
    step = replace(blank, before=left, after=right)
    goal = Goal((Claim("Y", left, right),), (*axes, "other"), dict.fromkeys(terms, own))
    return goal, Proof((Derivation("Y", left, right, (step,)),))


@pytest.mark.parametrize("law", laws_of_proofs(), ids=lambda law: law.name)
def test_every_law_can_be_stated_and_its_conditions_fail(law: Law):
    assert goal_fault(*stated(law, free=True)) == ""
    fault = goal_fault(*stated(law, free=False))
    if law.when:
        assert f"depends on {law.when[0].axis}" in fault
    elif law.sizes:
        assert "is no product of sizes" in fault
    else:
        assert fault == ""


@pytest.mark.parametrize("law", [law for law in all_laws() if law.disabled], ids=lambda x: x.name)
def test_a_disabled_law_is_no_law(law: Law):
    assert "there is no such law" in goal_fault(*stated(law, free=True))


def test_an_unknown_leaf_depends_on_everything():
    goal, proof = stated(LAWS["sums.multiply"], free=True)
    assert "depends on i" in goal_fault(replace(goal, leaf_axes={}), proof)


def test_a_size_is_the_sum_of_its_tiles():
    left = X * size("k")
    right = X * Term("sum", "k.l", (size("k.t"),))
    goal = Goal((Claim("Y", left, right),), AXES, LEAVES)
    for axes, fault in {
        ("k", "k.l", "k.t"): "",
        ("k", "k.lA", "k.tA"): "something else comes out",
        ("k", "k.t", "k.l"): "not iterations and tiles of one dimension",
        ("k", "k.l", "k.tA"): "not iterations and tiles of one dimension",
        ("b", "k.l", "k.t"): "not iterations and tiles of one dimension",
        ("k.l", "k.l", "k.t"): "not iterations and tiles of one dimension",
        ("k", "k", "k"): "not iterations and tiles of one dimension",
        ("k", "k.x", "k.t"): "what the law's variables and axes are",
    }.items():
        bound = dict(zip("ijk", axes, strict=True))
        step = Step(EXTENTS, True, (1,), {}, bound, left, right)
        found = goal_fault(goal, Proof((Derivation("Y", left, right, (step,)),)))
        assert fault in found, axes
        assert bool(fault) == bool(found), axes


# --- JSON ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GOALS)
def test_a_proof_is_read_back(name: str):
    _, proof = GOALS[name]()
    assert read_proof(json.loads(json.dumps(proof.document()))) == proof


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_changed_document_is_refused_or_the_same(data: st.DataObject):
    goal, proof = norms()
    document = proof.document()
    steps = document["outputs"][0]["steps"]
    entry = data.draw(st.sampled_from([*steps, document["outputs"][0]]))
    key = data.draw(st.sampled_from(sorted(entry)))
    entry[key] = data.draw(
        st.one_of(
            st.integers(-2, len(document["terms"]) + 1),
            st.lists(st.integers(-1, 2), max_size=3),
            st.sampled_from(["sums.multiply", "multiplication.commutes", "Y", None, True, {}]),
        )
    )
    try:
        changed = read_proof(document)
    except FormatError:
        return
    assert changed == proof or goal_fault(goal, changed) or same_steps(changed, proof)


def same_steps(changed: Proof, proof: Proof) -> bool:
    pairs = zip(changed.derivations[0].steps, proof.derivations[0].steps, strict=True)
    return all(a == b or says_the_same(a, b) for a, b in pairs)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"terms": [["add", "", 0, 0]], "outputs": [], "version": VERSION},
        {"terms": [["leaf", "X"], ["add", "", 0]], "outputs": [], "version": VERSION},
        {"terms": [["leaf", 3]], "outputs": [], "version": VERSION},
        {
            "terms": [["leaf", "X"]],
            "outputs": [{"output": "Y", "first": 0, "last": 1}],
            "version": VERSION,
        },
        {
            "terms": [["leaf", "X"]],
            "outputs": [{"output": "Y", "first": -1, "last": 0}],
            "version": VERSION,
        },
    ],
)
def test_what_is_no_derivation_is_named(document: object):
    with pytest.raises(FormatError, match="is no derivation"):
        read_proof(document)


# --- independence --------------------------------------------------------------------------------


def test_the_checker_imports_nothing_of_ours():
    code = "import sys, mirage_py.axioms.certificate.checker; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    ours = [m for m in done.stdout.split() if m.startswith("mirage_py.")]
    assert [m for m in ours if not m.startswith("mirage_py.axioms")] == []
    parts = ("checker", "graphs", "indices", "memory", "steps", "terms")
    wanted = ["", ".certificate", *(f".certificate.{part}" for part in parts)]
    assert ours == [f"mirage_py.axioms{part}" for part in wanted]
