"""Generation on a small set: what is found, that it repeats itself, and what others imply."""

from __future__ import annotations

import pytest

from mirage_py.axioms.substitutions.expression import Expr, inputs, operators
from mirage_py.axioms.substitutions.proofs import fault
from mirage_py.search.substitutions.egraph import are_equal
from mirage_py.search.substitutions.enumeration import Enumeration
from mirage_py.search.substitutions.generate import (
    SIZES,
    Found,
    generate,
    renamed,
    rewrites_of,
    without_implied,
)
from mirage_py.search.substitutions.instances import differs
from mirage_py.search.substitutions.universe import MATRIX, Universe

SMALL = Universe(
    "small",
    (("x0", MATRIX), ("x1", MATRIX), ("x2", MATRIX)),
    (("matmul", ()), ("concat", (1,)), ("split", (1, 0)), ("split", (1, 1))),
    3,
)


@pytest.fixture(scope="module")
def found() -> Found:
    return generate([SMALL])


def test_two_products_of_one_operand_become_one(found: Found) -> None:
    pairs = [r for r in found.rules if len(r.left) == 2 and len(inputs(*r.left)) == 3]
    (rule,) = pairs
    assert [x.op for x in rule.left] == ["matmul", "matmul"]
    assert [x.op for x in rule.right] == ["split", "split"]
    assert operators(*rule.right) == 3
    assert rule.weights == ("a", "b")
    assert [x.op for x in rule.once(rule.right)] == ["concat"]


def test_all_of_them_are_proved_and_pass_the_field_test(found: Found) -> None:
    assert len(found.rules) >= 5
    for rule in found.rules:
        assert fault(rule.left, rule.right, found.certificates[rule.name]) == ""
        assert not differs(rule.left, rule.right, trials=2)


def test_products_associate(found: Found) -> None:
    texts = [str(rule) for rule in found.rules]
    wanted = "x[m, n], a[n, k], b[k, p]"
    assert any(wanted in text and text.count("matmul") == 4 for text in texts)


def test_what_others_imply_is_dropped(found: Found) -> None:
    kept = without_implied(found)
    assert 0 < len(kept) < len(found.rules)
    assert {r.name for r in kept} <= {r.name for r in found.rules}


def test_whatever_is_equal_follows_from_them(found: Found) -> None:
    enumeration = Enumeration(SMALL, SIZES, 0)
    enumeration.run()
    rewrites = rewrites_of(found.rules, (2,))
    pairs: dict[tuple[Expr, ...], None] = {}
    for one, other in enumeration.equal:
        pair = renamed((enumeration.expression(one), enumeration.expression(other)))
        if {*inputs(pair[0])} <= {*inputs(pair[1])}:
            pairs[pair] = None
    assert len(pairs) > 100
    for pair in list(pairs)[::5]:
        assert are_equal(*pair, rewrites), pair


def test_it_repeats_itself(found: Found) -> None:
    smaller = SMALL.smaller(2)
    again = [str(r) for r in generate([smaller]).rules]
    assert again
    assert again == [str(r) for r in generate([smaller]).rules]
