from __future__ import annotations

from mirage_py.axioms.proof import joins
from mirage_py.axioms.term import Term, apply, const, leaf, reduce, size

X, G, W = leaf("X"), leaf("G"), leaf("W")
K = ("k.l", "k.t")
LEAVES = {"X": ("b.t", *K), "G": K, "W": (*K, "n.t")}
AXES = ("b.t", *K, "n.t")


def total(x: Term) -> Term:
    return reduce("sum", K, x)


def proved(a: Term, b: Term, **bounds: int) -> bool:
    return joins(a, b, LEAVES, axes=AXES, **bounds)


def norm() -> Term:
    return apply("sqrt", total(apply("square", X)) / size("k") + const("1e-06"))


def test_a_fused_norm_is_proved():
    assert proved(total(X / norm() * G * W), total(X * (G * W)) / norm())


def test_it_takes_the_expanded_ring_where_it_must():
    assert proved((X + G) * W, W * X + G * W)
    assert proved(apply("square", X + G), X * X + const("2") * (X * G) + G * G)


def test_a_variance_in_one_pass_is_proved():
    mean = total(X) / size("k")
    deviations = total(apply("square", X - mean))
    one_pass = total(X * X) - const("2") * (mean * total(X)) + mean * mean * size("k")
    assert proved(deviations, one_pass)


def test_what_is_false_is_not_proved():
    assert not proved(total(X * W), total(X) * total(W))
    assert not proved(total(X * W), total(X * W) / size("k"))
    assert not proved(X - G, G - X)


def test_a_bound_ends_the_attempt():
    goal = total(X / norm() * G * W), total(X * (G * W)) / norm()
    assert not proved(*goal, rounds=1)
    assert proved(goal[0], goal[0], rounds=0)
