from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from mirage_py.errors import UnsupportedError
from mirage_py.ugraph.field import FIELDS, FieldOps
from mirage_py.ugraph.interpret.meaning import FieldMeaning, FloatMeaning

SHAPES = [shape for shape in product((1, 3), (1, 4), (1, 2)) if shape != (1, 1, 1)]


@pytest.mark.parametrize("left", SHAPES)
@pytest.mark.parametrize("right", SHAPES)
def test_contractions_of_any_shape(left, right):
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=left), draw.normal(size=right)
    for axes in [(0,), (1,), (2,), (0, 1), (2, 0), (0, 1, 2)]:
        expected = (a * b).sum(axis=axes, keepdims=True)
        assert np.allclose(FloatMeaning().contract(a, b, axes), expected)


def test_a_mask_hides_infinities_and_nan():
    mask = np.array([0.0, 1.0, 0.0, 1.0])
    x = np.array([np.inf, 2.0, np.nan, 3.0])
    assert FloatMeaning().select(mask, x).tolist() == [0.0, 2.0, 0.0, 3.0]


def test_rescaling_starts_from_nothing():
    old = np.array([-np.inf, -np.inf, 1.0])
    new = np.array([-np.inf, 2.0, 3.0])
    factor = FloatMeaning().rescale(old, new, 2)
    assert np.allclose(factor, [1.0, 0.0, np.exp(-4.0)])


def test_overflow_is_silent():
    big = np.array([1e308])
    assert FloatMeaning().apply("mul", None, [big, big])[0] == np.inf
    assert FloatMeaning().power(big, 2.0)[0] == np.inf


def test_shifts_differ_by_key_and_stay_the_same_for_a_key():
    meaning = FieldMeaning(FieldOps(FIELDS[0], 1))
    x = meaning.ops.random((5,), "x")
    first, again, other = meaning.shift(x, "a"), meaning.shift(x, "a"), meaning.shift(x, "b")
    assert meaning.ops.equal(first, again)
    assert not meaning.ops.equal(first, other)
    assert not meaning.ops.equal(first, x)


def test_negative_integers_are_field_elements():
    meaning = FieldMeaning(FieldOps(FIELDS[0], 1))
    five = meaning.ops.constant(-5)
    assert meaning.ops.equal(meaning.index(np.array(-5)), five)


@pytest.mark.parametrize("meaning", [FloatMeaning(), FieldMeaning(FieldOps(FIELDS[0], 1))])
def test_only_elementwise_operators_apply(meaning):
    with pytest.raises(UnsupportedError, match="'matmul' is not an elementwise"):
        meaning.apply("matmul", None, [])
