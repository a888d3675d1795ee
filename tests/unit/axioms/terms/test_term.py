from __future__ import annotations

import dataclasses

import pytest

from mirage_py.axioms.terms.term import (
    ARITY,
    Term,
    apply,
    canonical_number,
    const,
    leaf,
    reduce,
    size,
    subterms,
    var,
)
from mirage_py.errors import InputError
from mirage_py.ugraph import operators

X, Y = leaf("X"), leaf("Y")


def test_terms_print_as_functions():
    term = apply("exp", -X) * Y / size("k") + const("1e-06")
    assert str(term) == "add(div(mul(exp(neg(X)), Y), |k|), 1e-06)"
    assert repr(reduce("sum", ("k.l", "k.t"), var("x"))) == "sum[k.l](sum[k.t](x))"


def test_equal_terms_are_one_key():
    assert X - Y == Term("sub", args=(leaf("X"), leaf("Y")))
    assert hash(X * Y) == hash(leaf("X") * leaf("Y"))
    assert X * Y != Y * X
    assert leaf("1") != const("1")


def test_terms_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        X.op = "const"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("op", "attr", "args"),
    [
        ("add", "", (X,)),
        ("matmul", "", (X, Y)),
        ("exp", "k.t", (X,)),
        ("sum", "", (X,)),
        ("leaf", "", ()),
        ("cast", "", (X,)),
    ],
)
def test_ill_formed_terms_are_refused(op: str, attr: str, args: tuple[Term, ...]):
    with pytest.raises(InputError, match=f"'{op}'"):
        Term(op, attr, args)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1", "1"),
        ("1.0", "1"),
        ("-0", "0"),
        ("1e-06", "1e-06"),
        ("0.000001", "1e-06"),
        ("0.10", "0.1"),
        ("1e3", "1000"),
        ("0.1234567890123456789", "0.1234567890123456789"),
        ("1e30", "1e+30"),
        ("-inf", "-inf"),
    ],
)
def test_a_number_has_one_spelling(text: str, canonical: str):
    assert canonical_number(text) == canonical == canonical_number(canonical)
    assert const(text) == const(canonical)


def test_no_number():
    with pytest.raises(InputError, match="'one'"):
        const("one")


def test_subterms_come_once_and_operands_first():
    shared = X * Y
    assert list(subterms(shared + shared, X)) == [X, Y, shared, shared + shared]


def test_deep_and_shared_terms_are_walked_once():
    term = X
    for _ in range(2000):
        term = term + term
    assert sum(1 for _ in subterms(term)) == 2001


def test_every_elementwise_operator_of_a_program_is_a_term():
    # A cast is the value it rounds; what has no field meaning of its own is for block graphs only.
    known = [
        o
        for o in operators.all_operators()
        if o.kind == "elementwise" and o.over_field is not None and o.name != "cast"
    ]
    assert len(known) > 20
    assert [o.name for o in known if ARITY.get(o.abstract_name) != o.arity] == []
