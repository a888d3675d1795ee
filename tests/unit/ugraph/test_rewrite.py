"""Rebuilding programs with other nodes, and the degrees of exponentials."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
import samples

from mirage_py.errors import InputError
from mirage_py.frontend.spec import parse
from mirage_py.ugraph.rewrite.degrees import shiftable_exps
from mirage_py.ugraph.rewrite.rebuild import rebuild

HEAD = "T = 12, S = 20\nX[T, S], V[S] : f32\n"


@pytest.mark.parametrize("name", sorted(samples.TEXTS))
def test_rebuilding_changes_nothing(name):
    program = samples.ugraph(name).program
    assert rebuild(program, {}) == program


def test_a_node_is_replaced_and_what_it_needed_goes():
    program = parse("N = 8\nX[N] : f32\nY[n] = exp(X[n]) * 2")
    exp = next(n for n, node in enumerate(program.nodes) if node.op == "exp")
    found = rebuild(program, {exp: lambda b, args: b.apply("sqrt", args[0])})
    assert "exp" not in [n.op for n in found.nodes]
    assert "sqrt" in [n.op for n in found.nodes]


def test_an_input_that_nothing_reads_any_more():
    program = parse("N = 8\nX[N], U[N] : f32\nY[n] = X[n] + U[n]")
    add = len(program.nodes) - 1
    with pytest.raises(InputError, match="never read"):
        rebuild(program, {add: lambda b, args: args[0]})
    found = rebuild(program, {add: lambda b, args: args[0]}, drop_unread_inputs=True)
    assert [t.name for t in found.inputs] == ["X"]


def test_strides_of_results_stay():
    program = parse("N = 8, M = 3\nX[N, M] : f32\nY[n, m] = X[n, m] * 2")
    (result,) = program.outputs
    strided = replace(result, tensor=replace(result.tensor, strides=(1, 8)))
    program = replace(program, outputs=(strided,))
    assert rebuild(program, {}) == program


def groups(body: str):
    program = parse(HEAD + body)
    return program, *shiftable_exps(program.nodes, [o.node for o in program.outputs])


def test_a_softmax_has_degree_nothing():
    program, found, degrees = groups(
        "let E[t, s] = exp(X[t, s])\nY[t] = sum[s](E[t, s] * V[s]) / sum[s](E[t, s])"
    )
    (group,) = found
    assert group.reduced == ("s",)
    by_op = {n.op: degrees[position] for position, n in enumerate(program.nodes)}
    assert by_op["exp"] == by_op["sum"] == by_op["mul"] == {group.key: Fraction(1)}
    assert by_op["div"] == {}


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("let E[t, s] = exp(X[t, s])\nY[t] = sum[s](E[t, s] * V[s]) / sqrt(sum[s](E[t, s]^2))", 1),
        ("let E[t, s] = exp(X[t, s])\nY[t] = sum[s](E[t, s] * V[s]) / sum[s](E[t, s]^2)", 0),
        ("let E[t, s] = exp(X[t, s])\nY[t] = (sum[s](E[t, s] * V[s]) + 1) / sum[s](E[t, s])", 0),
        ("Y[t, s] = exp(X[t, s]) * V[s]", 0),
        ("let E[t, s] = exp(X[t, s])\nY[t] = exp(sum[s](E[t, s] * V[s]) / sum[s](E[t, s]))", 1),
    ],
)
def test_which_exps_cancel(body, count):
    _, found, _ = groups(body)
    assert len(found) == count


def test_one_result_in_which_it_does_not_cancel_is_enough():
    body = "let E[t, s] = exp(X[t, s])\nY[t] = sum[s](E[t, s] * V[s]) / sum[s](E[t, s])"
    assert groups(body)[1]
    assert not groups(body + "\nZ[t] = sum[s](E[t, s])")[1]
