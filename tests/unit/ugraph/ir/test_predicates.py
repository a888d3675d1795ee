from __future__ import annotations

import itertools

from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.predicates import (
    FALSE,
    TRUE,
    conjunction,
    decided,
    disjunction,
    negation,
)

P = ix.compare("lt", ix.dim("i"), 2)
Q = ix.compare("ge", ix.dim("j"), ix.dim("i"))
FORMS = [
    P,
    Q,
    TRUE,
    FALSE,
    conjunction(P, Q),
    disjunction(P, negation(Q)),
    ix.Predicate("not", args=(P,)),
]


def truth(predicate):
    return [bool(predicate.evaluate({"i": i, "j": j})) for i in range(4) for j in range(4)]


def test_logic_is_that_of_the_values():
    for a, b in itertools.product(FORMS, FORMS):
        pairs = list(zip(truth(a), truth(b), strict=True))
        assert truth(conjunction(a, b)) == [x and y for x, y in pairs]
        assert truth(disjunction(a, b)) == [x or y for x, y in pairs]
    for a in FORMS:
        assert truth(negation(a)) == [not x for x in truth(a)]


def test_forms_are_simple():
    assert negation(negation(P)) == P
    assert conjunction(P, TRUE) == conjunction(TRUE, P) == conjunction(P, P) == P
    assert disjunction(P, FALSE) == disjunction(FALSE, P) == disjunction(P, P) == P
    assert conjunction(P, FALSE) == FALSE
    assert disjunction(P, TRUE) == TRUE
    assert negation(conjunction(P, Q)) == disjunction(negation(P), negation(Q))
    assert "not" not in str(negation(disjunction(P, Q)))


def test_what_indices_decide_by_themselves():
    i, j = ix.dim("i"), ix.dim("j")
    always = ix.compare("ge", i, 0)
    never = ix.compare("lt", i + j, 0)
    for predicate, wanted in [
        (always, True),
        (never, False),
        (ix.compare("eq", i, -1), False),
        (ix.compare("gt", i, -1), True),
        (TRUE, True),
        (FALSE, False),
        (ix.Predicate("and", args=(P, never)), False),
        (ix.Predicate("or", args=(P, always)), True),
        (ix.Predicate("not", args=(never,)), True),
    ]:
        assert decided(predicate) is wanted
        assert decided(negation(predicate)) is not wanted
    assert decided(ix.Predicate("or", args=(P, never))) is None
    # Not even where the size that there is would say so: kernels may learn sizes at launch.
    assert [decided(p) for p in (P, Q, ix.Predicate("not", args=(P,)))] == [None] * 3
