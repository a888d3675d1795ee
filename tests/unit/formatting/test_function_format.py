"""The sentences on what stood for the functions of a program."""

from __future__ import annotations

import pytest
from naive import naive_plan

from mirage_py.formatting.function_format import format_functions
from mirage_py.frontend.spec import parse
from mirage_py.verify.field_test.meanings import function_use


def words(expression: str) -> tuple[str, ...]:
    program = parse(f"N = 24\nX[N] : f32\nY[n] = {expression}")
    return format_functions(function_use(program, naive_plan(program, {"n": 8}).ugraph).document())


def test_a_report_that_does_not_know() -> None:
    assert format_functions(None) == ()


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("X[n] * 2", "No path from an input to an output carries an exponential."),
        (
            "exp(X[n]) + silu(X[n])",
            (
                "No path to Y carries more than one exponential (exp, silu), so the law "
                "exp(a) exp(b) = exp(a + b) holds in the trials."
            ),
        ),
        (
            "exp(tanh(X[n]))",
            (
                "Paths to Y carry several exponentials: exp is applied to what carries tanh, and "
                "stands for a random function there, of which exp(-a) = 1 / exp(a) alone is known."
            ),
        ),
        (
            "exp(log(exp(X[n])) + X[n])",
            (
                "Paths to Y carry several exponentials: exp is applied to what carries exp; a "
                "random function or a truth value lies between, so the law exp(a) exp(b) = "
                "exp(a + b) holds there too."
            ),
        ),
    ],
)
def test_paths(expression: str, says: str) -> None:
    assert words(expression)[0] == says


def test_what_stood_for_the_others() -> None:
    (said,) = words("sqrt(X[n]) + relu(X[n]) + erf(X[n])")[1:]
    assert said == (
        "The trials take sqrt by a fixed exponent, which respects products; relu by a random total "
        "order; erf as a random function, without laws."
    )
    assert len(words("exp(X[n])")) == 1
