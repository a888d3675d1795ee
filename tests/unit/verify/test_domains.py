"""A root is taken apart only where it stays a number."""

from __future__ import annotations

import pytest

from mirage_py.ugraph.text import parse_ugraph
from mirage_py.ugraph.ugraph import UGraph
from mirage_py.verify.domains import undefined
from mirage_py.verify.field_test import field_test

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


def graph(program: str, kernel: str) -> UGraph:
    """Of the operators of both, one a line and %2 first; the last one is the result."""
    text = GRAPH
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
    found = undefined(wrong.program, wrong, seed=0)
    assert found is not None
    assert "not a number" in str(found)
    assert not field_test(wrong.program, wrong, seed=0).equal


@pytest.mark.parametrize(
    ("program", "kernel"),
    [
        # Positive, and known to be.
        (
            "square %0; square %1; mul %2, %3; sqrt %4",
            "square %0; sqrt %2; square %1; sqrt %4; mul %3, %5",
        ),
        # Not known to be, but the same in both.
        ("sub %0, %1; sqrt %2", "neg %1; add %0, %2; sqrt %3"),
        ("exp %0; log %2; mul %3, %1", "exp %0; log %2; mul %1, %3"),
    ],
)
def test_roots_that_stay_numbers(program: str, kernel: str) -> None:
    right = graph(program, kernel)
    assert undefined(right.program, right, seed=0) is None
    assert field_test(right.program, right, seed=0).equal
