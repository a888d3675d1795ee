"""Positions that are data in the field test: µGraphs that read elsewhere do not pass."""

from __future__ import annotations

import pytest

from mirage_py.errors import ValidationError
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.text.text_form import parse_ugraph
from mirage_py.verify.evaluate.labels import Positions, label_ranges, looked_up
from mirage_py.verify.field_test.field_test import field_test
from mirage_py.verify.field_test.programs import compare_programs
from mirage_py.verify.samples.sampled_test import sampled_test

# The loss of labels, less a row of a table of as many rows, where the label counts.
TEXT = """ugraph loss
dim n = 60
dim v = 200
dim d = 48
input X[60, 200] : f32
input Y[60] : i64
input Z[60] : i64
input W[200, 48] : f32
output L[60, 48] : f32
program {
  %0 = load X[n, v]
  %1 = exp %0
  %2 = sum[v] %1
  %3 = log %2
  %4 = load X[n, Y[n] % 200]
  %5 = sub %3, %4
  %6 = load Y[n]
  %7 = const -100.0
  %8 = ne %6, %7
  %9 = const 0.0
  %10 = where %8, %5, %9
  %11 = load W[(Y[n] + 2) % 200, d]
  %12 = mul %10, %11
  return L[n, d] = %12
}
kernel first {
  grid n by 16
  section {
    %0 = load X[n, v]
    %1 = max[v] %0
    %2 = shift %1
    %3 = sub %0, %2
    %4 = exp %3
    %5 = sum[v] %4
    %6 = log %5
    %7 = add %6, %2
    %8 = load X[n, Y[n] % 200]
    %9 = sub %7, %8
    %10 = load Y[n]
    %11 = const -100.0
    %12 = ne %10, %11
    %13 = const 0.0
    %14 = where %12, %9, %13
    %15 = load W[(Y[n] + 2) % 200, d]
    %16 = mul %14, %15
    store L[n, d] = %16
  }
}
"""
KERNEL = TEXT.index("kernel first")


def read(text: str) -> UGraph:
    found = parse_ugraph(text)
    validate_ugraph(found)
    return found


def changed(old: str, new: str) -> UGraph:
    """Another kernel for the same program."""
    head, body = TEXT[:KERNEL], TEXT[KERNEL:]
    assert old in body
    text = head + body.replace(old, new)
    if "Z[" not in text.replace("Z[60]", ""):
        text = text.replace("input Z[60] : i64\n", "")
    return read(text)


def accepted(graph: UGraph) -> bool:
    found = field_test(graph.program, graph, seed=5)
    return found.equal and sampled_test(graph.program, graph, seed=5).equal


def test_what_is_right_passes():
    graph = changed("%16 = mul %14, %15", "%16 = mul %15, %14")
    evidence = field_test(graph.program, graph, seed=5)
    assert evidence.equal
    assert evidence.error_bound is None  # positions are few, and drawn from a small range
    assert sampled_test(graph.program, graph, seed=5).equal


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("X[n, Y[n] % 200]", "X[n, (Y[n] + 1) % 200]"),
        ("X[n, Y[n] % 200]", "X[n, Y[(n + 1) % 60] % 200]"),
        ("X[n, Y[n] % 200]", "X[(n + 1) % 60, Y[n] % 200]"),
        ("X[n, Y[n] % 200]", "X[Y[n] % 60, Y[n] % 200]"),
        ("X[n, Y[n] % 200]", "X[n, n]"),
        ("(Y[n] + 2) % 200", "Y[n] % 200"),
        ("(Y[n] + 2) % 200", "(Y[n] * 2) % 200"),
        ("(Y[n] + 2) % 200", "(Y[n] + 2) % 199"),
        ("const -100.0", "const -101.0"),
        ("where %12, %9, %13", "where %12, %9, %9"),
        ("ne %10, %11", "lt %10, %11"),
    ],
)
def test_what_reads_elsewhere_is_refused(old: str, new: str):
    assert not accepted(changed(old, new))


def test_another_tensor_of_positions_is_refused():
    program = TEXT[:KERNEL].replace("%7 = const -100.0", "%7 = load Z[n]")
    body = TEXT[KERNEL:].replace("%11 = const -100.0", "%11 = load Z[n]")
    assert accepted(read(program + body))
    assert not accepted(read(program + body.replace("W[(Y[n] + 2)", "W[(Z[n] + 2)")))


def test_programs_that_read_elsewhere_differ():
    one = changed("%16 = mul %14, %15", "%16 = mul %15, %14").program
    text = TEXT.replace("input Z[60] : i64\n", "").replace("W[(Y[n] + 2)", "W[(Y[n] + 3)")
    assert compare_programs(one, one).equal
    assert not compare_programs(one, read(text).program).equal


def test_ranges_of_positions():
    program = read(TEXT.replace("%7 = const -100.0", "%7 = load Z[n]")).program
    assert looked_up(program) == {"Y": Positions(-2, 201, (0,))}
    # Once as it is, once with 2 added: PyTorch takes neither from outside.
    assert label_ranges(program)["Y"] == (0, 197)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("W[(Y[n] + 2) % 200, d]", "W[Y[n], d]", "runs from"),
        ("W[(Y[n] + 2) % 200, d]", "W[Y[n] % 201, d]", "runs from"),
        ("W[(Y[n] + 2) % 200, d]", "W[X[n, v] % 200, d]", "gives a position"),
        ("W[(Y[n] + 2) % 200, d]", "W[Y[n + 1] % 200, d]", "runs from"),
        ("W[(Y[n] + 2) % 200, d]", "W[Y[n, d] % 200, d]", "2 indices"),
        ("store L[n, d]", "store L[Y[n] % 60, d]", "gives a position"),
    ],
)
def test_rules_of_look_ups(old: str, new: str, what: str):
    with pytest.raises(ValidationError, match=what):
        changed(old, new)
