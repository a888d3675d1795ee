"""The laws that only proofs use hold over finite fields, and so do their conditions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from unit.axioms.laws.test_laws import holds

from mirage_py.axioms.laws.notation import (
    exp,
    largest,
    log,
    maximum,
    sqrt,
    two,
    w,
    where,
    x,
    y,
    z,
    zero,
)
from mirage_py.axioms.laws.registry import all_laws
from mirage_py.axioms.proof.proof_laws import (
    CANCELLATIONS,
    PROOF_LAWS,
    SELECTIONS,
    SHIFTS,
    laws_of_proofs,
)
from mirage_py.axioms.terms.law import Law
from mirage_py.axioms.terms.term import Term, apply, var
from mirage_py.ugraph.field import FieldArray
from mirage_py.ugraph.operators import operator

Evaluate = Callable[..., FieldArray]


def with_a_condition(pattern: Term) -> Term:
    """The pattern with a comparison for x: a field selects by what is 0 or 1."""
    if pattern == x:
        return apply("lt", var("u"), var("v"))
    return Term(pattern.op, pattern.attr, tuple(map(with_a_condition, pattern.args)))


# Fields have no order, and know no logarithm of a product.
IN_FIELDS = [
    law for law in PROOF_LAWS if law not in SHIFTS or not re.search(r"max|min|log|power", law.name)
]


@pytest.mark.parametrize("law", IN_FIELDS, ids=lambda law: law.name)
def test_law_holds_over_finite_fields(law: Law, evaluate: Evaluate):
    if law in SELECTIONS:
        law = Law(law.name, with_a_condition(law.left), with_a_condition(law.right))
    assert holds(law, evaluate), str(law)


@pytest.mark.parametrize("law", SELECTIONS, ids=lambda law: law.name)
@pytest.mark.parametrize("condition", [-2.0, 0.0, 0.5, 1.0])
def test_a_selection_holds_for_every_number(law: Law, condition: float):
    values = {"x": np.float64(condition), "y": np.float64(0.25), "z": np.float64(-1e30)}

    def value(pattern: Term) -> Any:
        if pattern.op == "var":
            return values[pattern.attr]
        meaning = operator(pattern.op).over_floats
        assert meaning is not None
        return meaning(*map(value, pattern.args))

    assert value(law.left) == value(law.right)


def differ(law: Law) -> bool:
    """Whether the sides of a law differ in float64: for some numbers both may have no value."""
    draw = np.random.default_rng(1)
    shape = {"y": (1, 50)} if law.when else {}
    values = {v: draw.normal(size=shape.get(v, (4, 50))).round(1) for v in "wxyz"}
    values["w"] = values["w"] > 0

    def value(pattern: Term) -> Any:
        if pattern.op == "var":
            return values[pattern.attr]
        if pattern.op == "const":
            return np.float64(pattern.attr)
        args = [value(a) for a in pattern.args]
        if pattern.op == "max":
            return args[0].max(axis=0, keepdims=True)
        if pattern.op == "pow":
            return args[0] ** args[1]
        meaning = operator(pattern.op).over_floats
        assert meaning is not None
        return meaning(*args)

    with np.errstate(all="ignore"):
        left, right = value(law.left), value(law.right)
    assert np.isfinite(left).mean() > 0.3
    return not np.allclose(left, right, rtol=1e-9, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("law", SHIFTS, ids=lambda law: law.name)
def test_what_takes_out_a_shift_holds_for_every_number(law: Law):
    assert not differ(law)


@pytest.mark.parametrize(
    "law",
    [
        Law("wrong.max", largest("i", x / exp(y)), largest("i", x) / exp(y)),
        Law("wrong.max_minus", largest("i", x - y), largest("i", x) - y),
        Law("wrong.sqrt", sqrt(x / exp(y)), sqrt(x) / exp(y)),
        Law("wrong.log", log(x / exp(y)), log(x) + y),
        Law("wrong.chain", (x / exp(y)) * (exp(z) / z), x / z),
        Law("wrong.where_zero", where(w, x / exp(y), z), where(w, x, z) / exp(y)),
        Law("wrong.maximum", maximum(x / y, z / y), maximum(x, z) / y),
    ],
    ids=lambda law: law.name,
)
def test_what_takes_out_a_shift_wrongly_is_caught(law: Law):
    assert differ(law)


@pytest.mark.parametrize(
    "law",
    [
        Law("wrong.cancels", (x / y) * y, x * y),
        Law("wrong.difference", x - y, zero),
        Law("wrong.mean", (x + z) / y, x + z / y),
        Law("wrong.double", x + x, two + x),
    ],
    ids=lambda law: law.name,
)
def test_a_wrong_law_is_caught(law: Law, evaluate: Evaluate):
    assert not holds(law, evaluate)


def test_every_division_that_cancels_is_by_sizes():
    by_sizes = [law for law in CANCELLATIONS if "div" in str(law)]
    assert [law.name for law in by_sizes if law.sizes != ("y",)] == []
    assert str(by_sizes[0]) == "cancellation.size: mul(div(x, y), y) -> x, y a size"


def test_the_search_does_not_have_them():
    names = [law.name for law in all_laws()]
    assert not [law.name for law in PROOF_LAWS if law.name in names]


def test_names_are_unique_and_no_law_is_disabled():
    laws = laws_of_proofs()
    assert len({law.name for law in laws}) == len(laws)
    assert not [law.name for law in laws if law.disabled]


def test_a_size_that_the_law_does_not_bind_is_refused():
    with pytest.raises(ValueError, match="nothing binds it"):
        Law("wrong.unbound", x - x, zero, sizes=("y",))
