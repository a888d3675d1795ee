"""Normal forms by the rules of the database: equal ones are equal graphs, and few equal graphs have
different ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from mirage_py.axioms.substitutions.database import proved_rules
from mirage_py.axioms.substitutions.expression import Expr, inputs
from mirage_py.search.substitutions.arithmetic import PRIME, applied
from mirage_py.search.substitutions.egraph import Rewrite
from mirage_py.search.substitutions.enumeration import Enumeration
from mirage_py.search.substitutions.generate import SIZES, rewrites_of
from mirage_py.search.substitutions.normal_forms import NormalForms
from mirage_py.search.substitutions.universe import IMAGE, UNIVERSES, Universe

M, N, K, P = (("m",), ("n",), ("k",), ("p",))


def given(name: str, *shape: tuple[str, ...]) -> Expr:
    return Expr("input", (name, tuple(shape)))


def of(op: str, *args: Expr, attrs: Sequence[object] = ()) -> Expr:
    return Expr(op, tuple(attrs), args)  # type: ignore[arg-type]


def joined(axis: int, *args: Expr) -> Expr:
    return of("concat", *args, attrs=(axis,))


@pytest.fixture(scope="module")
def forms() -> NormalForms:
    return NormalForms(rewrites_of(proved_rules(), (2,)), 2)


@pytest.mark.parametrize("name", ["matrices", "transposed"])
def test_graphs_of_one_form_are_equal_and_equal_ones_have_one(name: str, forms: NormalForms):
    (universe,) = (u for u in UNIVERSES if u.name == name)
    enumeration = Enumeration(universe.smaller(2), SIZES, 0)
    enumeration.run()
    first = {other: one for one, other in enumeration.equal}
    values: dict[Expr, int] = {}
    apart = 0
    for number in range(len(enumeration.values)):
        form = forms.normal(enumeration.expression(number))
        assert form is not None
        value = first.get(number, number)
        assert values.setdefault(form, value) == value, form
        apart += form != forms.normal(enumeration.expression(value))
    assert len(first) > 80
    assert apart <= len(first) / 20


def test_largest_elements_are_not_equal_by_chance():
    operators = (("relu", ()), ("max_pool", ("unit", "r")))
    enumeration = Enumeration(Universe("pooled", (("x0", IMAGE),), operators, 3), SIZES, 0)
    enumeration.run()
    forms = NormalForms(rewrites_of(proved_rules(), (3,)), 3)
    pairs = [tuple(map(enumeration.expression, pair)) for pair in enumeration.equal]
    assert len(pairs) > 3
    assert all(forms.are_equal(*pair) for pair in pairs)


def test_products_of_joined_operands_with_shared_parts(forms: NormalForms):
    # Rule 93 of TASO is this of convolutions: more steps than an e-graph is given.
    x, y, z = given("x", M, N), given("y", M, K), given("z", M, P)
    one, other = joined(1, x, joined(1, y, z)), joined(1, y, joined(1, x, z))
    squares = [of("matmul", s, of("transpose", s)) for s in (one, other)]
    assert forms.are_equal(*squares)
    assert not forms.are_equal(one, other)


def test_wrong_equations_have_two_forms(forms: NormalForms):
    x, y = given("x", M, M), given("y", M, M)
    turned = of("transpose", x)
    wrong = [
        (of("matmul", x, turned), of("matmul", turned, x)),
        (of("matmul", x, y), of("matmul", y, x)),
        (joined(1, x, y), joined(1, y, x)),
        (of("relu", of("add", x, y)), of("add", of("relu", x), of("relu", y))),
        (of("transpose", of("matmul", x, y)), of("matmul", turned, of("transpose", y))),
    ]
    assert not any(forms.are_equal(*pair) for pair in wrong)


def test_sums_are_lists_only_where_rules_say_so():
    shape = (M,)
    x, y, z = (given(name, *shape) for name in "xyz")
    commuted = Rewrite((of("add", x, y),), (of("add", y, x),))
    one, other = of("add", x, of("add", y, z)), of("add", of("add", z, x), y)
    assert not NormalForms([commuted], 1).are_equal(one, other)
    associated = Rewrite((one,), (of("add", of("add", x, y), z),))
    assert NormalForms([commuted, associated], 1).are_equal(one, other)


def test_what_is_learned_is_used_within_other_graphs():
    x, y = given("x", M, N), given("y", N, K)
    product = of("matmul", x, y)
    lemma = of("relu", of("matmul", of("relu", x), y))
    forms = NormalForms([], 2)
    assert not forms.are_equal(of("transpose", lemma), of("transpose", product))
    forms.learn(lemma, product)
    assert forms.are_equal(of("transpose", lemma), of("transpose", product))
    assert {*inputs(product)} == {x, y}


def test_the_largest_element_and_relu_have_one_order():
    random = np.random.Generator(np.random.PCG64(0))
    image = random.integers(0, PRIME, (1, 2, 7))

    def relu(of):
        return applied("relu", (), [of], 0, SIZES)

    def pooled(of):
        return applied("max_pool", ("unit", "r"), [of], 0, SIZES)

    assert np.array_equal(relu(pooled(image)), pooled(relu(image)))
    assert not np.array_equal(pooled(image), pooled(relu(image)))
