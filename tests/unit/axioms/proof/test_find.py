"""Equalities that the laws lead to, and unequal terms that they do not join."""

from __future__ import annotations

from dataclasses import replace

import pytest
from replayed import goal_fault

from mirage_py.axioms.proof.find import find_proof
from mirage_py.axioms.proof.goal import Claim, Goal
from mirage_py.axioms.proof.proof_graph import ProofGraph, Reason
from mirage_py.axioms.proof.steps import Proof
from mirage_py.axioms.terms.term import Term, apply, const, leaf, reduce, size

X, G, W, A, B = (leaf(n) for n in "XGWAB")
K = ("k.l", "k.t")
LEAVES = {"X": ("b", *K), "G": K, "W": (*K, "n"), "A": (*K, "r"), "B": ("r", "n")}
AXES = ("b", *K, "n", "r")
MEAN = reduce("sum", K, X) / size("k")


def total(x: Term) -> Term:
    return reduce("sum", K, x)


def goal(*pairs: tuple[Term, Term]) -> Goal:
    claims = tuple(Claim(f"Y{n}", a, b) for n, (a, b) in enumerate(pairs))
    return Goal(claims, AXES, LEAVES)


def proof_of(*pairs: tuple[Term, Term], **bounds: int) -> Proof | None:
    asked = goal(*pairs)
    found = find_proof(asked, **bounds)
    assert found is None or goal_fault(asked, found) == ""
    return found


def norm() -> Term:
    return apply("sqrt", total(apply("square", X)) / size("k") + const("1e-06"))


def squared(x: Term) -> Term:
    return apply("square", x)


LONGER = total((X / norm()) * G * W), total(X * (G * W)) / norm()


@pytest.mark.parametrize(
    ("left", "right"),
    [
        LONGER,
        ((X + G) * W, W * X + G * W),
        (squared(X + G), X * X + const("2") * (X * G) + G * G),
        (total(total(X * W)), total(total(W * X))),
        (
            total(X * W) + Term("sum", "r", (total(X * A) * B,)),
            total(X * (W + Term("sum", "r", (A * B,)))),
        ),
        (total(squared(X - MEAN)), total(X * X) - MEAN * total(X)),
        (
            total(squared(X - MEAN)),
            total(X * X) - const("2") * (MEAN * total(X)) + MEAN * MEAN * size("k"),
        ),
        (total(squared(X - MEAN)) / size("k"), total(squared(X)) / size("k") - squared(MEAN)),
    ],
)
def test_what_is_true_is_proved(left: Term, right: Term):
    assert proof_of((left, right)) is not None


def test_equal_terms_need_no_step():
    found = proof_of((X, X))
    assert found is not None
    assert (found.length, found.laws) == (0, ())


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (total(X * W), total(X) * total(W)),
        (total(X * W), total(X * W) / size("k")),
        (X - G, G - X),
        (X / X, const("1")),
        ((X / G) * G, X),
        (total(squared(X - MEAN)), total(X * X) - const("2") * (MEAN * total(X))),
    ],
)
def test_what_is_false_or_not_known_is_not(left: Term, right: Term):
    assert proof_of((left, right)) is None


def test_a_layer_norm_after_its_matmul_is_proved():
    whole = Goal((), ("b", "k", "n"), {"X": ("b", "k"), "W": ("k", "n")})
    row, weights = Term("sum", "k", (X,)), Term("sum", "k", (W,))
    mean = row / size("k")
    variance = Term("sum", "k", (squared(X - mean),)) / size("k")
    normed = Term("sum", "k", (((X - mean) / apply("sqrt", variance)) * W,))
    one_pass = (Term("sum", "k", (squared(X),)) - row * mean) / size("k")
    after = (Term("sum", "k", (X * W,)) - mean * weights) / apply("sqrt", one_pass)
    asked = replace(whole, claims=(Claim("Y", normed, after),))
    found = find_proof(asked)
    assert found is not None
    assert goal_fault(asked, found) == ""


def test_one_output_without_a_proof_is_none():
    assert proof_of(LONGER, (X - G, G - X)) is None
    both = proof_of(LONGER, (X * G, G * X))
    assert both is not None
    assert [len(d.steps) > 0 for d in both.derivations] == [True, True]


def test_bounds_end_the_attempt():
    assert proof_of(LONGER, rounds=1) is None
    assert proof_of(LONGER, max_entries=10) is None
    assert proof_of((X, X), rounds=0) is not None


def test_a_large_goal_is_not_begun():
    deep = X
    for _ in range(5000):
        deep = apply("tanh", deep)
    assert proof_of((deep, deep)) is None


def test_derivations_do_not_depend_on_the_run():
    assert proof_of(LONGER) == proof_of(LONGER)


def test_a_factor_is_taken_out_in_the_form_that_lacks_the_axis():
    # The factor is written with W, which depends on k, but is equal to B, which does not.
    factor = B + (W - W)
    found = proof_of((total(X * factor), total(X) * B))
    assert found is not None
    assert "sums.multiply" in found.laws


def test_an_entry_is_written_anew_without_an_axis():
    graph = ProofGraph(AXES, LEAVES)
    bit = graph.bits["k.t"]
    outer = graph.add_term(apply("exp", B + (W - W)))
    assert graph.mask(outer) & bit
    assert graph.free_of(outer, bit) is None
    graph.merge(graph.add_term(W - W), graph.add_term(const("0")), Reason("cancellation"))
    graph.rebuild()
    assert not graph.mask(outer) & bit
    free = graph.free_of(outer, bit)
    assert free is not None
    assert graph.term(free) == apply("exp", B + const("0"))
    assert graph.find(free) == graph.find(outer)
