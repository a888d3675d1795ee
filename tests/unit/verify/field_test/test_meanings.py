"""The treatment of each function in the field test, and the paths that carry exponentials."""

from __future__ import annotations

from dataclasses import fields

import pytest
import samples
from naive import naive_plan

from mirage_py.frontend.spec import parse
from mirage_py.ugraph.field import FIELDS, FieldArray, FieldOps
from mirage_py.ugraph.interpret.meaning import FieldMeaning
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.operators import all_operators, operator
from mirage_py.verify.evaluate.trial import has_q_part, keyed_operators
from mirage_py.verify.field_test.field_test import field_test
from mirage_py.verify.field_test.meanings import FunctionUse, Nested, Paths, function_use, treatment

ROWS = tuple(o.name for o in all_operators() if o.over_field is not None)


def program(expression: str) -> Program:
    names = "X[N], U[N]" if "U" in expression else "X[N]"
    return parse(f"N = 24\n{names} : f32\nY[n] = {expression}")


def use(expression: str) -> FunctionUse:
    whole = program(expression)
    return function_use(whole, naive_plan(whole, {"n": 8}).ugraph)


# Whose values the field knows exactly: sums, products, choices by a truth value, and all that the
# interpreter moves around. A new operator has to be put here or to be treated in another way.
EXACT = (
    "load", "const", "size", "index", "mask", "sum", "matmul", "shift", "accum_sum", "store",
    "store_add", "read", "neg", "reciprocal_no_nan", "square", "add", "sub", "mul", "div", "where",
    "cast",
)  # fmt: skip


def test_every_operator_is_treated() -> None:
    unary = [Node("load"), Node("load")]
    kinds = {o.name: treatment(Node(o.name, (0, 1)[: o.arity]), unary) for o in all_operators()}
    assert tuple(sorted(EXACT)) == tuple(sorted(op for op, kind in kinds.items() if not kind))
    lists = [f.name for f in fields(FunctionUse)]
    assert all(kind in lists for kind in kinds.values() if kind)


@pytest.mark.parametrize("has_q", [True, False], ids=["q part", "no q part"])
@pytest.mark.parametrize("name", ROWS)
def test_what_is_said_of_q_parts_is_what_they_are(name: str, has_q: bool) -> None:
    ops = FieldOps(FIELDS[0], 4)
    arity = operator(name).arity
    drawn = [ops.random((5,), f"{n}") for n in range(arity)]
    args = [a if has_q else FieldArray(a.p, None) for a in drawn]
    found = FieldMeaning(ops).apply(name, None, args)
    said = has_q_part(Node(name, tuple(range(arity))), [has_q] * arity, constant_power=False)
    assert said == (found.q is not None)


def test_linear_in_the_inputs() -> None:
    found = use("X[n] * U[n] + 2 * X[n]")
    nothing = Paths((("Y", 0),))
    assert found == FunctionUse((), (), (), (), (), 0, nothing, nothing)
    assert found.is_lax


def test_one_exponential_on_each_path() -> None:
    found = use("exp(X[n]) * silu(U[n]) / (1 + exp(U[n]))")
    assert found.is_lax
    assert found.exponential == ("exp", "silu")
    assert found.program == found.ugraph == Paths((("Y", 1),))


def test_an_exponential_of_an_exponential_is_a_random_function() -> None:
    found = use("exp(tanh(X[n]) + U[n])")
    assert found.program.nested == (Nested("exp", ("tanh",), lawful=False),)
    assert found.program.most == 2
    assert not found.is_lax


@pytest.mark.parametrize("between", ["log({})", "erf({})", "where({} > 1, X[n], U[n])"])
def test_what_has_a_q_part_again_lets_the_law_of_exp_hold(between: str) -> None:
    inner = between.format("exp(X[n])")
    nested = use(f"exp({inner})").program.nested
    assert nested == (Nested("exp", ("exp",), lawful=True),)
    # And it does hold: the product of the powers passes for the power of the sum.
    whole = program(f"exp({inner} + U[n])")
    split = program(f"exp({inner}) * exp(U[n])")
    assert field_test(whole, naive_plan(split, {"n": 8}).ugraph, seed=2).equal
    assert not any("exponential" in op for op in keyed_operators(whole))


def test_without_a_q_part_the_law_does_not_hold() -> None:
    whole, split = program("exp(exp(X[n]) + U[n])"), program("exp(exp(X[n])) * exp(U[n])")
    assert not field_test(whole, naive_plan(split, {"n": 8}).ugraph, seed=2).equal


def test_a_power_that_is_no_constant_is_an_exponential() -> None:
    found = use("exp(X[n]^U[n])")
    assert found.random == ("pow",)
    assert found.program.nested == (Nested("exp", ("pow",), lawful=False),)
    assert keyed_operators(program("exp(X[n]^U[n])")) == ("pow", "exp of an exponential")


def test_lists() -> None:
    found = use("sqrt(X[n]^2) + X[n]^0.3 + max(X[n], relu(U[n])) + log(U[n]) + (X[n] == U[n])")
    assert found.powers == ("sqrt", "pow")
    assert found.ordered == ("relu", "maximum")
    assert found.equality == ("eq",)
    assert found.random == ("log",)
    assert not found.is_lax


@pytest.mark.parametrize("name", ["softmax", "attention", "softmax_whole_row"])
def test_a_maximum_that_only_shifts_is_not_ordered(name: str) -> None:
    graph = samples.ugraph(name)
    found = function_use(graph.program, graph)
    assert found.ordered == ()
    assert found.shifts == 1
    assert found.ugraph == found.program
    assert found.is_lax


def test_exponentials_are_followed_through_memory() -> None:
    """Through a library call and an intermediate: the second kernel loads what carries one."""
    graph = samples.ugraph("rms_norm_matmul_library")
    assert function_use(graph.program, graph).ugraph == Paths((("Y", 0),))
    edited = samples.edited("rms_norm_matmul_library", ("%9 = sqrt %8", "%9 = exp %8"))
    assert function_use(graph.program, edited).ugraph == Paths((("Y", 1),))
