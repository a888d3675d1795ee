"""Untrusted derivations: documents that would hang, crash or flood a reader are refused briefly."""

from __future__ import annotations

import pytest
from replayed import goal_fault
from unit.axioms.proof.test_proof_attacks import AXES, LEAVES, X, Z, one_step

from mirage_py.axioms.proof.goal import Claim, Goal
from mirage_py.axioms.proof.steps import VERSION, Derivation, Proof, read_proof
from mirage_py.axioms.terms.term import Term, size, subterms
from mirage_py.errors import FormatError
from mirage_py.formatting.derivation_format import format_derivation


def nested(depth: int) -> object:
    value: object = "x"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "term",
    [
        *(["const", text] for text in ("sNaN", "-sNaN12", "1e999999999", "x" * 100_000)),
        ["const", "9" * 5000 + "e99999999999"],
        [nested(100_000), ""],
        ["leaf", nested(100_000)],
        ["\ud800", "\ud800"],
        ["o" * 100_000, ""],
        ["neg", "", 10**5000],
        ["neg", "", 0],
        ["neg", "", 1.0],
        ["add", "", *([0] * 1000)],
        [],
        "neg",
        3,
    ],
    ids=range(16),
)
def test_a_harmful_term_is_named_in_a_short_message(term: object):
    with pytest.raises(FormatError, match="is no derivation") as error:
        read_proof(
            {"terms": [["leaf", "X"], term, ["neg", "", 7]], "outputs": [], "version": VERSION}
        )
    assert len(error.value.why) <= 200
    assert error.value.why.isprintable()


@pytest.mark.parametrize(
    "change",
    [
        {"at": [1]},
        {"at": [0, 0]},
        {"at": [0] * 100_000},
        {"at": [-1]},
        {"at": [True, False]},
        {"law": "\x1b[2J"},
        {"law": "\ud800"},
        {"law": "x" * 1_000_000},
        {"with": {"x": 9}},
        {"with": []},
        {"before": 0},
    ],
    ids=range(11),
)
def test_a_step_that_cannot_be_shown_is_not_read(change: dict[str, object]):
    step = {"law": "maxima.idempotent", "forward": True, "at": [0], "with": {}}
    step |= {"before": 1, "after": 1}
    terms = [["leaf", "X"], ["neg", "", 0]]
    whole = {
        "terms": terms,
        "outputs": [{"output": "Y", "first": 1, "last": 1, "steps": [step]}],
        "version": VERSION,
    }
    assert format_derivation(whole)
    step |= change
    with pytest.raises(FormatError, match="is no derivation"):
        read_proof(whole)


def test_names_from_outside_are_short_and_printable():
    goal, proof = one_step("\ud800\n" * 1000, X, Z)
    fault = goal_fault(goal, proof)
    assert len(fault) < 200
    assert fault.isprintable()
    goal, proof = one_step("sums.constant", Z, X, y=Z, i="\ud800" * 1000)
    assert len(goal_fault(goal, proof)) < 200
    assert goal_fault(goal, proof).isprintable()
    stated = Proof((Derivation("\ud800" * 1000, X, X, ()),))
    assert len(goal_fault(goal, stated)) < 200


def test_deep_terms_and_shared_ones_are_replayed():
    """Two copies of a term of 20,000 levels, each of which has the one below it twice."""
    terms: list[list[object]] = [["leaf", "X"], ["leaf", "X"]]
    terms += [["add", "", n, n] for n in range(40_000)]
    step = {"law": "maxima.idempotent", "forward": False, "at": [0] * 3, "with": {"x": 40_001}}
    steps = [{**step, "before": 40_000, "after": 40_001}]
    output = {"output": "Y", "first": 40_000, "last": 40_001, "steps": steps}
    proof = read_proof({"terms": terms, "outputs": [output], "version": VERSION})
    goal = Goal((Claim("Y", proof.derivations[0].first, X),), AXES, LEAVES)
    assert goal_fault(goal, proof)
    again = read_proof({"terms": terms, "outputs": [output], "version": VERSION})
    assert again == proof
    assert len(list(subterms(again.derivations[0].first, proof.derivations[0].first))) == 20_001


def test_what_may_have_no_value_is_looked_for_once():
    """In each of 9,000 roots there are all below it: sets of them would fill the memory."""
    terms: list[list[object]] = [["leaf", "X"], *(["sqrt", "", n] for n in range(9_000))]
    step = {"law": "maxima.idempotent", "forward": False, "at": [], "with": {"x": 9_000}}
    terms.append(["maximum", "", 9_000, 9_000])
    steps = [{**step, "before": 9_000, "after": 9_001}]
    output = {"output": "Y", "first": 9_000, "last": 9_001, "steps": steps}
    proof = read_proof({"terms": terms, "outputs": [output], "version": VERSION})
    first, last = proof.derivations[0].first, proof.derivations[0].last
    assert goal_fault(Goal((Claim("Y", first, last),), AXES, LEAVES), proof) == ""


def test_a_side_condition_that_fails_does_not_print_the_term():
    x = X
    for _ in range(200):
        x = x + x
    before = Term("sum", "b", (x,))
    goal, proof = one_step("sums.constant", before, x * size("b"), y=x, i="b")
    assert goal_fault(goal, proof).endswith("y depends on b")
    goal, proof = one_step("cancellation.size", (x / x) * x, x, x=x, y=x)
    assert goal_fault(goal, proof).endswith("y is no product of sizes")
