"""A µGraph has a value wherever its program has one: roots, guarded divisions, ties."""

from __future__ import annotations

import pytest

from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.text.text_form import parse_ugraph
from mirage_py.verify.field_test.field_test import field_test

GRAPH = """
ugraph roots
dim a = 4
dim b = 6
input X[4, 6] : f32
input Z[4, 6] : f32
output Y[4, 6] : f32
program {
  %0 = load X[a, b]
  %1 = load Z[a, b]
PROGRAM
}
kernel k {
  grid a by 3
  %0 = load X[a, b]
  %1 = load Z[a, b]
KERNEL
}
"""


def graph(program: str, kernel: str, text: str = GRAPH) -> UGraph:
    """Of the operators of both, one a line and %2 first; the last one is the result."""
    ends = ("return Y[a, b]", "store Y[a, b]")
    for word, code, end in zip(("PROGRAM", "KERNEL"), (program, kernel), ends, strict=True):
        lines = [f"%{n} = {line}" for n, line in enumerate(code.split("; "), 2)]
        body = "\n".join([*lines, f"{end} = %{len(lines) + 1}"])
        text = text.replace(word, body)
    return parse_ugraph(text)


@pytest.mark.parametrize(
    ("program", "kernel"),
    [
        ("mul %0, %1; sqrt %2", "sqrt %0; sqrt %1; mul %2, %3"),
        ("square %0; sqrt %2; mul %3, %1", "sqrt %0; square %2; mul %3, %1"),
        ("div %0, %1; sqrt %2", "sqrt %0; rsqrt %1; mul %2, %3"),
    ],
)
def test_roots_of_what_may_be_negative(program: str, kernel: str) -> None:
    wrong = graph(program, kernel)
    found = field_test(wrong.program, wrong, seed=0)
    assert not found.equal
    assert "has no value" in str(found.mismatch)


@pytest.mark.parametrize(
    ("program", "kernel"),
    [
        # Positive, and known to be.
        (
            "square %0; square %1; mul %2, %3; sqrt %4",
            "square %0; sqrt %2; square %1; sqrt %4; mul %3, %5",
        ),
        # It may be negative, and is in both.
        ("sub %0, %1; sqrt %2", "neg %1; add %0, %2; sqrt %3"),
        ("exp %0; log %2; mul %3, %1", "exp %0; log %2; mul %1, %3"),
    ],
)
def test_roots_that_stay_numbers(program: str, kernel: str) -> None:
    right = graph(program, kernel)
    assert field_test(right.program, right, seed=0).equal


GUARDED = "const 0.0; gt %0, %2; div %1, %0; where %3, %4, %2"


@pytest.mark.parametrize(
    "kernel",
    [
        # The condition as a factor: 0 times what division by zero leaves.
        "const 0.0; gt %0, %2; div %3, %0; mul %4, %1",
        "const 0.0; gt %0, %2; div %1, %0; mul %4, %3",
        "const 0.0; gt %0, %2; where %3, %1, %2; div %4, %0",
        # Selected where it is a tie.
        "const 0.0; ge %0, %2; div %1, %0; where %3, %4, %2",
    ],
)
def test_a_guard_that_is_taken_off(kernel: str) -> None:
    wrong = graph(GUARDED, kernel)
    for seed in range(4):
        assert not field_test(wrong.program, wrong, seed=seed).equal


@pytest.mark.parametrize(
    "kernel",
    [
        "const 0.0; lt %2, %0; div %1, %0; where %3, %4, %2",
        "const 0.0; le %0, %2; div %1, %0; where %3, %2, %4",
        "const 0.0; const 1.0; gt %0, %2; where %4, %0, %3; div %1, %5; where %4, %6, %2",
    ],
)
def test_a_guard_that_stays(kernel: str) -> None:
    right = graph(GUARDED, kernel)
    for seed in range(4):
        assert field_test(right.program, right, seed=seed).equal


# What a program may have 0 at, an integer and the logarithm of 1.
COUNTS = GRAPH.replace("input X[4, 6] : f32", "input X[4, 6] : i32")


@pytest.mark.parametrize(
    ("text", "program", "kernel", "is_right"),
    [
        (GRAPH, "log %0; const 0.0; ne %2, %3; div %2, %2; where %4, %5, %3", "const 1.0", False),
        (
            GRAPH,
            "log %0; const 0.0; ne %2, %3; div %2, %2; where %4, %5, %3",
            "log %0; const 0.0; ne %2, %3",
            True,
        ),
        (GRAPH, "log %0; sub %2, %2; const 1.0; eq %3, %1; where %5, %4, %1", "const 1.0", False),
        (COUNTS, "const 0.0; ne %0, %2; div %0, %0; where %3, %4, %2", "div %0, %0", False),
        (COUNTS, "const 0.0; ne %0, %2; div %0, %0; where %3, %4, %2", "const 1.0", False),
        (COUNTS, "const 0.0; ge %0, %2; where %3, %0, %2", "neg %0; neg %2", False),
        (COUNTS, "div %0, %0; mul %0, %2", "neg %0; neg %2", True),
    ],
)
def test_where_a_divisor_is_zero(text: str, program: str, kernel: str, is_right: bool) -> None:
    asked = graph(program, kernel, text)
    assert field_test(asked.program, asked, seed=0).equal is is_right
