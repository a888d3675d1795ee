"""Casts and stores to integers are right for whole numbers that fit, and for nothing else."""

from __future__ import annotations

import pytest

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.spec import parse
from mirage_py.ugraph.checks.whole_numbers import (
    program_loss,
    require_whole_numbers,
    ugraph_loss,
)
from mirage_py.ugraph.text.text_form import parse_ugraph

HEAD = "A = 4, B = 300\nX[A, B] : f32\nL[A] : i32\nM[A] : bool\n"


@pytest.mark.parametrize(
    "body",
    [
        "Y[a, b] = X[a, b] * cast(M[a], i8) + L[a]",
        "Y[a, b] = X[a, b] * cast(M[a] * (b < 7), bool) + L[a]",
        "Y[a, b] = X[a, b] * M[a] * cast(max(L[a], 3), i32)",
        "Y[a, b] = X[a, b] * M[a] * cast(L[a], i32)",
    ],
)
def test_whole_numbers_are_kept(body: str) -> None:
    assert program_loss(parse(HEAD + body)) == ""


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("Y[a, b] = cast(X[a, b], i32) * M[a] * L[a]", "i32"),
        ("Y[a, b] = X[a, b] * M[a] * cast(L[a], i8)", "i8"),
        ("Y[a, b] = X[a, b] * M[a] * cast(L[a], bool)", "bool"),
        ("Y[a, b] = X[a, b] * M[a] * cast(L[a] * L[a], i32)", "i32"),
        ("Y[a, b] = X[a, b] * M[a] * L[a] * cast(0.5, i32)", "i32"),
    ],
)
def test_what_is_lost_is_named(body: str, kind: str) -> None:
    program = parse(HEAD + body)
    assert kind in program_loss(program)
    with pytest.raises(UnsupportedError, match=kind):
        require_whole_numbers(program)


GRAPH = """
ugraph handed_over
dim a = 4
dim b = 6
input X[4, 6] : f32
output Y[4, 6] : f32
tensor T[4, 6] : KIND
program {
  %0 = load X[a, b]
  %1 = neg %0
  return Y[a, b] = %1
}
kernel first {
  grid a by 2
  %0 = load X[a, b]
  store T[a, b] = %0
}
kernel last {
  grid a by 2
  %0 = load T[a, b]
  %1 = neg %0
  store Y[a, b] = %1
}
"""


@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_floats_may_go_between_kernels(kind: str) -> None:
    assert ugraph_loss(parse_ugraph(GRAPH.replace("KIND", kind))) == ""


@pytest.mark.parametrize("kind", ["i32", "i8", "bool"])
def test_fractions_do_not_go_between_kernels_as_integers(kind: str) -> None:
    assert f"type {kind}" in ugraph_loss(parse_ugraph(GRAPH.replace("KIND", kind)))


@pytest.mark.parametrize(("kind", "value", "fits"), [
    ("f32", "index b", True),
    ("f16", "index b", False),  # not beyond 2048; there is one answer for every size
    ("f32", "load X[a, b]", False),
])  # fmt: skip
def test_positions_may_go_between_kernels(kind: str, value: str, fits: bool) -> None:
    """A kernel that returns whole numbers may read them where another one has stored them."""
    text = GRAPH.replace("KIND", kind).replace("Y[4, 6] : f32", "Y[4, 6] : i64")
    text = text.replace("  %0 = load X[a, b]\n  store", f"  %0 = {value}\n  store")
    assert (ugraph_loss(parse_ugraph(text)) == "") is fits


@pytest.mark.parametrize(("kind", "fits"), [("i64", False), ("i32", False), ("i16", True)])
def test_integers_of_any_size_are_compared_as_they_are_in_memory(kind: str, fits: bool) -> None:
    """Not where a kernel before has stored them in float32: two may be one there."""
    text = GRAPH.replace("KIND", "f32").replace("X[4, 6] : f32", f"X[4, 6] : {kind}")
    text = text.replace("Y[4, 6] : f32", "Y[4, 6] : bool")
    text = text.replace("  %1 = neg %0\n  return", "  %1 = lt %0, %0\n  return")
    at_once = text.replace("load T[a, b]\n  %1 = neg %0", "load X[a, b]\n  %1 = lt %0, %0")
    handed = text.replace("load T[a, b]\n  %1 = neg %0", "load T[a, b]\n  %1 = lt %0, %0")
    moved = at_once.replace("%1 = lt %0, %0\n  store", "%1 = neg %0\n  %2 = lt %0, %1\n  store")
    moved = moved.replace("store Y[a, b] = %1", "store Y[a, b] = %2")
    assert ugraph_loss(parse_ugraph(at_once)) == ""
    assert (ugraph_loss(parse_ugraph(handed)) == "") is fits
    assert (ugraph_loss(parse_ugraph(moved)) == "") is fits
