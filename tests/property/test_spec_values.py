"""Random specs compute what their text says, read literally: point by point, in loops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mirage_py.frontend.spec import parse
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.interpret.program import evaluate_program
from mirage_py.ugraph.rewrite.masks import lower_masks

EXTENTS = {"a": 3, "b": 2, "c": 4}
Env = Mapping[str, int]
_RNG = np.random.default_rng(3)
X, Z = _RNG.uniform(0.5, 1.5, size=(3, 2)), _RNG.uniform(0.5, 1.5, size=4)


@dataclass(frozen=True)
class Term:
    """An expression as text, as a function of its indices, and those indices."""

    text: str
    at: Callable[[Env], float]
    letters: frozenset[str]


LEAVES = (
    Term("X[a, b]", lambda e: X[e["a"], e["b"]], frozenset("ab")),
    Term("X[2 - a, (b + 1) % 2]", lambda e: X[2 - e["a"], (e["b"] + 1) % 2], frozenset("ab")),
    Term("X[a, c // 2]", lambda e: X[e["a"], e["c"] // 2], frozenset("ac")),
    Term("Z[c]", lambda e: Z[e["c"]], frozenset("c")),
    Term("Z[a + 1]", lambda e: Z[e["a"] + 1], frozenset("a")),
    Term("Z[2 * b + 1]", lambda e: Z[2 * e["b"] + 1], frozenset("b")),
    Term("1.5", lambda e: 1.5, frozenset()),
    Term("(c - a)", lambda e: float(e["c"] - e["a"]), frozenset("ac")),
)
UNARY = {
    "-{}": lambda x: -x,
    "exp({} / 8)": lambda x: math.exp(x / 8),
    "abs({})": abs,
    "({})^2": lambda x: x * x,
    "tanh({})": math.tanh,
}
BINARY = {
    "({} + {})": lambda x, y: x + y,
    "({} - {})": lambda x, y: x - y,
    "{} * {}": lambda x, y: x * y,
    "{} / ({}^2 + 1)": lambda x, y: x / (y * y + 1),
    "max({}, {})": max,
}
REDUCE = {"sum": sum, "max": max, "mean": lambda xs: sum(xs) / len(xs)}
CONDITIONS = {
    "c <= a": (lambda e: e["c"] <= e["a"], "ac"),
    "b == 0 | a > 1": (lambda e: e["b"] == 0 or e["a"] > 1, "ab"),
    "0 < c - a < 3 & not b == 1": (lambda e: 0 < e["c"] - e["a"] < 3 and e["b"] != 1, "abc"),
}


@st.composite
def terms(draw: st.DrawFn, leaves: tuple[Term, ...], depth: int = 3) -> Term:
    kind = draw(st.sampled_from(["leaf", "unary", "binary", "binary", "reduce", "where"]))
    if depth == 0 or kind == "leaf":
        return draw(st.sampled_from(leaves))
    x = draw(terms(leaves, depth - 1))
    if kind == "unary":
        form, function = draw(st.sampled_from(list(UNARY.items())))
        text = form.format(f"({x.text})" if form == "-{}" else x.text)
        return Term(text, lambda e: function(x.at(e)), x.letters)
    if kind == "reduce" and x.letters:
        return reduced(draw, x)
    y = draw(terms(leaves, depth - 1))
    if kind == "where":
        text, (holds, letters) = draw(st.sampled_from(list(CONDITIONS.items())))
        return Term(
            f"where({text}, {x.text}, {y.text})",
            lambda e: x.at(e) if holds(e) else y.at(e),
            x.letters | y.letters | frozenset(letters),
        )
    form, combine = draw(st.sampled_from(list(BINARY.items())))
    text = form.format(f"({x.text})", f"({y.text})")
    return Term(text, lambda e: combine(x.at(e), y.at(e)), x.letters | y.letters)


def reduced(draw: st.DrawFn, x: Term) -> Term:
    name, function = draw(st.sampled_from(list(REDUCE.items())))
    over = draw(st.lists(st.sampled_from(sorted(x.letters)), min_size=1, unique=True))

    def at(env: Env) -> float:
        return function([x.at({**env, **point}) for point in points(over)])

    return Term(f"{name}[{', '.join(over)}]({x.text})", at, x.letters - set(over))


def points(letters: list[str]) -> list[dict[str, int]]:
    ranges = [range(EXTENTS[letter]) for letter in letters]
    return [dict(zip(letters, p, strict=True)) for p in itertools.product(*ranges)]


@st.composite
def specs(draw: st.DrawFn) -> tuple[str, Term, list[str]]:
    """A let, read at other indices than it was defined for, and an output."""
    first = draw(terms(LEAVES, 2))
    letters = sorted(first.letters)
    name = f"t[{', '.join(letters)}]" if letters else "t"
    moved = {"a": ("2 - a", lambda e: 2 - e["a"]), "b": ("c // 2", lambda e: e["c"] // 2)}
    places = [moved.get(letter, (letter, lambda e, letter=letter: e[letter])) for letter in letters]
    again = Term(
        f"t[{', '.join(text for text, _ in places)}]" if letters else "t",
        lambda e: first.at({n: f(e) for n, (_, f) in zip(letters, places, strict=True)}),
        frozenset("c" if letter == "b" else letter for letter in letters),
    )
    value = draw(terms((*LEAVES, again, again, again)))
    order = list(draw(st.permutations(sorted(value.letters))))
    left = ", ".join(order) or "0"
    ranges = ", ".join(f"{letter} < {extent}" for letter, extent in EXTENTS.items())
    # All inputs and lets are read, whatever was drawn.
    text = (
        f"X[3, 2], Z[4] : f32\nindex {ranges}\nlet {name} = {first.text}\n"
        f"Y[{left}] = {value.text}\nU[0] = {again_summed(again)} + X[0, 0] + Z[0]"
    )
    return text, value, order


def again_summed(again: Term) -> str:
    over = ", ".join(sorted(again.letters))
    return f"sum[{over}]({again.text})" if over else again.text


@given(specs())
def test_a_spec_computes_what_it_says(spec: tuple[str, Term, list[str]]):
    text, value, order = spec
    expected = np.array([value.at(point) for point in points(order)])
    program = parse(text)
    for form in (program, lower_masks(program)):
        got = evaluate_program(form, {"X": X, "Z": Z}, FloatMeaning())["Y"]
        np.testing.assert_allclose(got.reshape(-1), expected, rtol=1e-9, atol=1e-12)
