"""Every law holds over finite fields, every side condition is needed, and a wrong law is caught."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from field_reference import NamedOps
from law_table import term_variables

from mirage_py.axioms.laws.notation import exp, largest, sqrt, total, where, x, y, z
from mirage_py.axioms.laws.registry import all_laws, laws_in_force
from mirage_py.axioms.terms.law import (
    Guard,
    Independent,
    Law,
    Narrower,
    NotSize,
    Uneven,
    Within,
    axis_variables,
)
from mirage_py.axioms.terms.term import Term, apply
from mirage_py.ugraph.field import FIELDS, DivisionByZero, FieldArray

Evaluate = Callable[..., FieldArray]
DRAWS = 40


def fixed_or_random_extents(draw: int, axes: list[str], rng: random.Random) -> dict[str, int]:
    if draw < 3:
        return dict.fromkeys(axes, (1, 3, 2)[draw])
    return {axis: rng.choice((1, 2, 3)) for axis in axes}


def holds_in_draw(law: Law, evaluate: Evaluate, draw: int, violated: Independent | None) -> bool:
    rng = random.Random(f"{law.name} {draw}")
    # Two axes that the law does not mention: its variables may depend on them too.
    axes = [*axis_variables(law), "extra", "other"]
    extents = fixed_or_random_extents(draw, axes, rng)
    if violated:
        extents = dict.fromkeys(axes, 3)
    shapes: dict[str, list[int]] = {}
    for name in term_variables(law):
        free = [c.axis for c in law.when if c.var == name and c != violated]
        taken = [a for a in axes if a not in free and (draw == 1 or rng.random() < 0.6)]
        if violated and violated.var == name:
            taken.append(violated.axis)
        shapes[name] = [extents[a] if a in taken else 1 for a in axes]
    for attempt in range(20):
        ops = NamedOps(FIELDS[draw % len(FIELDS)], seed=1000 * draw + attempt)
        values = {name: ops.random(shape, f"{name} {attempt}") for name, shape in shapes.items()}
        tie(values, law, rng)
        try:
            left = evaluate(ops, law.left, values, extents)
            right = evaluate(ops, law.right, values, extents)
        except DivisionByZero:
            continue
        shape = np.broadcast_shapes(left.shape, right.shape)
        return ops.equal(left.broadcast(shape), right.broadcast(shape))
    raise AssertionError(f"{law.name}: every draw divides by zero")


def tie(values: dict[str, FieldArray], law: Law, rng: random.Random) -> None:
    """Random values are never equal; comparisons and maxima must be tried on equal ones too."""
    names = term_variables(law)
    restricted = [c.var for c in law.when]
    if len(names) > 1 and not restricted and rng.random() < 0.3:
        first, second = rng.sample(names, 2)
        values[second] = values[first]


def holds(law: Law, evaluate: Evaluate) -> bool:
    return all(holds_in_draw(law, evaluate, draw, None) for draw in range(DRAWS))


def as_parameter(law: Law) -> object:
    marks = [pytest.mark.xfail(reason=law.disabled, strict=True)] if law.disabled else []
    return pytest.param(law, id=law.name, marks=marks)


@pytest.mark.parametrize("law", [as_parameter(law) for law in all_laws()])
def test_law_holds_over_finite_fields(law: Law, evaluate: Evaluate):
    assert holds(law, evaluate), str(law)


@pytest.mark.parametrize(
    ("law", "condition"),
    [
        pytest.param(law, condition, id=f"{law.name}-{condition.var}")
        for law in all_laws()
        for condition in law.when
        if not law.disabled
    ],
)
def test_side_condition_is_needed(law: Law, condition: Independent, evaluate: Evaluate):
    assert not all(holds_in_draw(law, evaluate, draw, condition) for draw in range(DRAWS))


WRONG = (
    Law("wrong.exp_of_sum", exp(x) + exp(y), exp(x + y)),
    Law("wrong.sqrt_of_sum", sqrt(x) + sqrt(y), sqrt(x + y)),
    Law("wrong.difference_commutes", x - y, y - x),
    Law("wrong.quotient_associates", x / (y / z), (x / y) / z),
    Law("wrong.sum_of_product", total("i", x * y), total("i", x) * total("i", y)),
    Law("wrong.sum_without_condition", total("i", x * y), total("i", x) * y),
    Law("wrong.sum_over_dividend", total("i", y / x), y / total("i", x)),
    Law("wrong.max_of_sum", largest("i", x + y), largest("i", x) + largest("i", y)),
    Law("wrong.max_is_sum", largest("i", x), total("i", x)),
    Law("wrong.le_is_lt", apply("le", x, y), apply("lt", x, y)),
    Law("wrong.mask_of_sum", total("i", where(x, y, z)), where(x, total("i", y), total("i", z))),
    Law("wrong.matmul_divided", total("i", (x / y) * z), total("i", x * z) / y),
)


@pytest.mark.parametrize("law", WRONG, ids=[law.name for law in WRONG])
def test_wrong_law_is_caught(law: Law, evaluate: Evaluate):
    assert not holds(law, evaluate)


def test_names_are_unique_and_say_their_family():
    names = [law.name for law in all_laws()]
    assert len(dict.fromkeys(names)) == len(names)
    assert all(name.count(".") == 1 for name in names)


def test_rings_share_out_the_laws_that_are_not_disabled():
    factored, expanded = laws_in_force("factored"), laws_in_force("expanded")
    assert {law.name for law in (*factored, *expanded)} == {
        law.name for law in all_laws() if not law.disabled
    }
    assert {law.ring for law in factored} == {"factored"}
    assert {law.ring for law in expanded} == {"expanded"}


def test_no_law_cancels():
    """A law from a compound term to a constant would make everything a part of everything."""
    assert not [law for law in all_laws() if law.right.op == "const" and law.left.args]


@pytest.mark.parametrize(
    ("left", "right", "both_ways", "when"),
    [
        (x, x + y, False, ()),
        (x + y, x, True, ()),
        (x, total("i", x), False, ()),
        (total("i", x), x, False, (Independent("y", "i"),)),
        (total("i", x), x, False, (Independent("x", "j"),)),
    ],
)
def test_unbound_names_are_refused(
    left: Term, right: Term, both_ways: bool, when: tuple[Independent, ...]
):
    with pytest.raises(ValueError, match="nothing binds it"):
        Law("wrong.unbound", left, right, both_ways=both_ways, when=when)


@pytest.mark.parametrize(
    "guard",
    [
        NotSize("z"),
        Within("z", "x"),
        Within("x", "z"),
        Narrower(("x", "z"), "y"),
        Narrower(("y",), "z"),
        Uneven(("x", "y", "z")),
    ],
)
def test_a_guard_speaks_of_the_law(guard: Guard):
    with pytest.raises(ValueError, match="nothing binds it"):
        Law("wrong.unbound", x + y, y + x, only=(guard,))


def test_laws_print_with_conditions_and_guards():
    free = (Independent("y", "i"),)
    guards = (NotSize("y"), Within("y", "x"), Narrower(("x", "z"), "y"), Uneven(("x", "z")))
    law = Law("sums.z", total("i", x * z / y), total("i", x * z) / y, when=free, only=guards)
    assert str(law) == (
        "sums.z: sum[i](div(mul(x, z), y)) -> div(sum[i](mul(x, z)), y), y free of i, "
        "only if y is no size, only if y has the axes of x at most, "
        "only if x * z lacks an axis of y, only if x, z differ in their axes"
    )
