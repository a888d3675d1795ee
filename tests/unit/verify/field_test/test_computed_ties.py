"""Comparisons of computed values, of degree 1 and 2 in some input: ties are told apart from both
sides of them, also where no float is the tie.
"""

from __future__ import annotations

import pytest

from mirage_py.frontend.spec import parse
from mirage_py.verify.field_test.programs import compare_programs

INPUTS = {
    "X": "X[B, S] : f32", "Z": "Z[B, S] : f32", "V": "V[B] : f32", "L": "L[B] : i32",
    "K": "K[B, S] : i32", "M": "M[B, S] : bool",
}  # fmt: skip
READ = {"X": "X[b, s]", "Z": "Z[b, s]", "L": "L[b]", "K": "K[b, s]", "M": "M[b, s]"}
SIDES = {
    "a sum": ("sum[s](X[b, s])", "1e-4"),
    "a mean": ("sum[s](X[b, s]) / 20", "0.1"),
    "a product": ("X[b, s] * Z[b, s]", "1e-4"),
    "a multiple": ("3 * X[b, s]", "0.7"),
    "a sum of products": ("sum[s](X[b, s] * Z[b, s])", "0.001"),
    "a square": ("X[b, s] * X[b, s]", "1e-4"),
    "a sum of squares": ("sum[s](X[b, s]^2)", "1e-6"),
    "a norm": ("sqrt(sum[s](X[b, s]^2))", "1e-6"),
    "a root mean square": ("sqrt(sum[s](X[b, s]^2) / 20)", "1e-3"),
    "a distance": ("sum[s]((X[b, s] - Z[b, s])^2)", "1e-4"),
    "a difference": ("abs(X[b, s] - Z[b, s])", "1e-4"),
    "a largest magnitude": ("max[s](abs(X[b, s]))", "1e-4"),
    "below the maximum": ("max[s](X[b, s]) - X[b, s]", "0.1"),
    "a quotient": ("X[b, s] / Z[b, s]", "0.1"),
    "two computed values": ("sum[s](X[b, s])", "0.1 * V[b] + 0.3"),
    "an index": ("10 * X[b, s]", "s + 0.1 * b"),
    "a whole number": ("s + 3", "2 * L[b] + 1"),
    "a sum of whole numbers": ("sum[s](K[b, s])", "7"),
    "a count of truths": ("sum[s](M[b, s])", "5"),
    "a share of truths": ("sum[s](M[b, s]) / 20", "0.25"),
    "a masked sum": ("sum[s](where(M[b, s], X[b, s], 0))", "0.1"),
    "a shifted relu": ("relu(X[b, s] - 0.1)", "0.2"),
    "a sigmoid": ("sigmoid(X[b, s] - 0.1)", "0.5"),
    "another place": ("X[b, (s + 1) % 20] + Z[b, s]", "0.1"),
}  # fmt: skip


def _selected(condition: str, yes: str = "5", no: str = "0"):
    """Reads what the condition names: more inputs take longer to draw."""
    read = [name for name in INPUTS if name in condition + "XV"]
    declared = "\n".join(["B = 12, S = 20", *(INPUTS[name] for name in read)])
    others = " + ".join(READ[name] for name in read if name in READ)
    return parse(f"{declared}\nY[b, s] = where({condition}, {yes}, {no}) + V[b] + 0 * ({others})")


@pytest.mark.parametrize("name", SIDES)
def test_strict_and_weak_operators_differ_at_ties(name: str) -> None:
    left, right = SIDES[name]
    strict, weak = (_selected(f"{left} {op} {right}") for op in (">", ">="))
    assert not compare_programs(strict, weak).equal


@pytest.mark.covering(1)
@pytest.mark.parametrize("name", ["a sum", "a distance", "an index", "a count of truths"])
@pytest.mark.parametrize(("one", "other"), [("<=", "<"), (">=", "=="), ("<", "!="), ("!=", ">")])
def test_other_operators(name: str, one: str, other: str) -> None:
    left, right = SIDES[name]
    ours, theirs = (_selected(f"{left} {op} {right}") for op in (one, other))
    assert not compare_programs(ours, theirs).equal


@pytest.mark.parametrize("name", SIDES)
def test_one_condition_in_two_spellings(name: str) -> None:
    left, right = SIDES[name]
    spelled, same = _selected(f"{left} > {right}"), _selected(f"{left} <= {right}", "0", "5")
    assert compare_programs(spelled, same).equal


def test_what_is_continuous_has_no_tie() -> None:
    one = _selected("sum[s](X[b, s]) > 0.3", "sum[s](X[b, s]) - 0.3")
    other = _selected("sum[s](X[b, s]) >= 0.3", "sum[s](X[b, s]) - 0.3")
    assert compare_programs(one, other).equal
