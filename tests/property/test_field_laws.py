"""Laws of the field operators: those they keep, and those that must not hold by accident."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from field_reference import NamedOps
from hypothesis import assume, given
from hypothesis import strategies as st

from mirage_py.ugraph.field import FIELDS, DivisionByZero, FieldArray
from mirage_py.ugraph.field.powers import rational_exponent, window_plan

Term = Callable[[NamedOps, FieldArray, FieldArray, FieldArray], FieldArray]
SHAPE = (4, 6)


def c(ops: NamedOps, value: float | Fraction) -> FieldArray:
    return ops.constant(value)


# name: left side, right side; over x, y, z of shape [4, 6]
RING_LAWS: dict[str, tuple[Term, Term]] = {
    "x + y = y + x": (lambda o, x, y, z: o.add(x, y), lambda o, x, y, z: o.add(y, x)),
    "(x + y) + z = x + (y + z)": (
        lambda o, x, y, z: o.add(o.add(x, y), z),
        lambda o, x, y, z: o.add(x, o.add(y, z)),
    ),
    "x y = y x": (lambda o, x, y, z: o.mul(x, y), lambda o, x, y, z: o.mul(y, x)),
    "(x y) z = x (y z)": (
        lambda o, x, y, z: o.mul(o.mul(x, y), z),
        lambda o, x, y, z: o.mul(x, o.mul(y, z)),
    ),
    "x (y + z) = x y + x z": (
        lambda o, x, y, z: o.mul(x, o.add(y, z)),
        lambda o, x, y, z: o.add(o.mul(x, y), o.mul(x, z)),
    ),
    "x - y = x + -y": (
        lambda o, x, y, z: o.sub(x, y),
        lambda o, x, y, z: o.add(x, o.neg(y)),
    ),
    "x - x = 0": (lambda o, x, y, z: o.sub(x, x), lambda o, x, y, z: c(o, 0)),
    "x^2 = x x": (lambda o, x, y, z: o.square(x), lambda o, x, y, z: o.mul(x, x)),
    "where(x > y, z, z) = z": (
        lambda o, x, y, z: o.where(o.gt(x, y), z, z),
        lambda o, x, y, z: z,
    ),
    "sum(x + y) = sum(x) + sum(y)": (
        lambda o, x, y, z: o.sum(o.add(x, y), 0),
        lambda o, x, y, z: o.add(o.sum(x, 0), o.sum(y, 0)),
    ),
    "sum(sum(x)) = sum(x)": (
        lambda o, x, y, z: o.sum(o.sum(x, 1), 0),
        lambda o, x, y, z: o.sum(x, (0, 1)),
    ),
    "contract(x, y) = sum(x y)": (
        lambda o, x, y, z: o.contract(x[:, None], y[None], 2),
        lambda o, x, y, z: o.sum(o.mul(x[:, None], y[None]), 2),
    ),
    "contract(x + y, z) = contract(x, z) + contract(y, z)": (
        lambda o, x, y, z: o.contract(o.add(x, y), z, 1),
        lambda o, x, y, z: o.add(o.contract(x, z, 1), o.contract(y, z, 1)),
    ),
    "erf(-x) = -erf(x)": (
        lambda o, x, y, z: o.erf(o.neg(x)),
        lambda o, x, y, z: o.neg(o.erf(x)),
    ),
    "gelu(x) - gelu(-x) = x": (
        lambda o, x, y, z: o.sub(o.gelu(x), o.gelu(o.neg(x))),
        lambda o, x, y, z: x,
    ),
    "log(x y) = log(y x)": (
        lambda o, x, y, z: o.log(o.mul(x, y)),
        lambda o, x, y, z: o.log(o.mul(y, x)),
    ),
}

DIVISION_LAWS: dict[str, tuple[Term, Term]] = {
    "(x / y) y = x": (lambda o, x, y, z: o.mul(o.div(x, y), y), lambda o, x, y, z: x),
    "x / y + z / y = (x + z) / y": (
        lambda o, x, y, z: o.add(o.div(x, y), o.div(z, y)),
        lambda o, x, y, z: o.div(o.add(x, z), y),
    ),
    "x / y / z = x / (y z)": (
        lambda o, x, y, z: o.div(o.div(x, y), z),
        lambda o, x, y, z: o.div(x, o.mul(y, z)),
    ),
    "x / (y / z) = x z / y": (
        lambda o, x, y, z: o.div(x, o.div(y, z)),
        lambda o, x, y, z: o.div(o.mul(x, z), y),
    ),
    "1 / (1 / x) = x": (lambda o, x, y, z: o.reciprocal(o.reciprocal(x)), lambda o, x, y, z: x),
    "rsqrt(x) = 1 / sqrt(x)": (
        lambda o, x, y, z: o.rsqrt(x),
        lambda o, x, y, z: o.reciprocal(o.sqrt(x)),
    ),
    "rsqrt(x) = sqrt(1 / x)": (
        lambda o, x, y, z: o.rsqrt(x),
        lambda o, x, y, z: o.sqrt(o.reciprocal(x)),
    ),
    "x^-1.5 = 1 / (x sqrt(x))": (
        lambda o, x, y, z: o.pow_const(x, -1.5),
        lambda o, x, y, z: o.reciprocal(o.mul(x, o.sqrt(x))),
    ),
}

ROOT_LAWS: dict[str, tuple[Term, Term]] = {
    "sqrt(x) sqrt(y) = sqrt(x y)": (
        lambda o, x, y, z: o.mul(o.sqrt(x), o.sqrt(y)),
        lambda o, x, y, z: o.sqrt(o.mul(x, y)),
    ),
    "sqrt(x^2) = sqrt(x)^2": (
        lambda o, x, y, z: o.sqrt(o.square(x)),
        lambda o, x, y, z: o.square(o.sqrt(x)),
    ),
    "sqrt(sqrt(x)) = x^0.25": (
        lambda o, x, y, z: o.sqrt(o.sqrt(x)),
        lambda o, x, y, z: o.pow_const(x, 0.25),
    ),
    "sqrt(9 x^2 y) = sqrt(9) sqrt(x^2) sqrt(y)": (
        lambda o, x, y, z: o.sqrt(o.mul(o.mul(c(o, 9), o.square(x)), y)),
        lambda o, x, y, z: o.mul(o.mul(c(o, 3), o.sqrt(o.square(x))), o.sqrt(y)),
    ),
    "(x y)^0.3 = x^0.3 y^0.3": (
        lambda o, x, y, z: o.pow_const(o.mul(x, y), 0.3),
        lambda o, x, y, z: o.mul(o.pow_const(x, 0.3), o.pow_const(y, 0.3)),
    ),
}

ORDER_LAWS: dict[str, tuple[Term, Term]] = {
    "max(x, y) = max(y, x)": (
        lambda o, x, y, z: o.maximum(x, y),
        lambda o, x, y, z: o.maximum(y, x),
    ),
    "max(max(x, y), z) = max(x, max(y, z))": (
        lambda o, x, y, z: o.maximum(o.maximum(x, y), z),
        lambda o, x, y, z: o.maximum(x, o.maximum(y, z)),
    ),
    "max(x, x) = x": (lambda o, x, y, z: o.maximum(x, x), lambda o, x, y, z: x),
    "max(x, min(x, y)) = x": (
        lambda o, x, y, z: o.maximum(x, o.minimum(x, y)),
        lambda o, x, y, z: x,
    ),
    "max(x, min(y, z)) = min(max(x, y), max(x, z))": (
        lambda o, x, y, z: o.maximum(x, o.minimum(y, z)),
        lambda o, x, y, z: o.minimum(o.maximum(x, y), o.maximum(x, z)),
    ),
    "min(x, y) = -max(-x, -y)": (
        lambda o, x, y, z: o.minimum(x, y),
        lambda o, x, y, z: o.neg(o.maximum(o.neg(x), o.neg(y))),
    ),
    "max(x, y) + min(x, y) = x + y": (
        lambda o, x, y, z: o.add(o.maximum(x, y), o.minimum(x, y)),
        lambda o, x, y, z: o.add(x, y),
    ),
    "max(x, y) = where(x > y, x, y)": (
        lambda o, x, y, z: o.maximum(x, y),
        lambda o, x, y, z: o.where(o.gt(x, y), x, y),
    ),
    "max over x of max over y = max over both": (
        lambda o, x, y, z: o.max(o.max(x, 0), 0),
        lambda o, x, y, z: o.max(x, (0, 1)),
    ),
    "max is what maximum gives one by one": (
        lambda o, x, y, z: o.max(x, 0),
        lambda o, x, y, z: o.maximum(o.maximum(x[3], x[1]), o.maximum(x[0], x[2])),
    ),
    "min(x) = -max(-x)": (
        lambda o, x, y, z: o.min(x, 1, keepdims=True),
        lambda o, x, y, z: o.neg(o.max(o.neg(x), 1, keepdims=True)),
    ),
    "|x| = max(x, -x)": (
        lambda o, x, y, z: o.abs(x),
        lambda o, x, y, z: o.maximum(x, o.neg(x)),
    ),
    "|-x| = |x|": (lambda o, x, y, z: o.abs(o.neg(x)), lambda o, x, y, z: o.abs(x)),
    "|x y| = |x| |y|": (
        lambda o, x, y, z: o.abs(o.mul(x, y)),
        lambda o, x, y, z: o.mul(o.abs(x), o.abs(y)),
    ),
    "||x|| = |x|": (lambda o, x, y, z: o.abs(o.abs(x)), lambda o, x, y, z: o.abs(x)),
    "|x|^2 = x^2": (lambda o, x, y, z: o.square(o.abs(x)), lambda o, x, y, z: o.square(x)),
    "relu(x) = max(x, 0)": (
        lambda o, x, y, z: o.relu(x),
        lambda o, x, y, z: o.maximum(x, o.constant(0)),
    ),
    "relu(x) = where(x > 0, x, 0)": (
        lambda o, x, y, z: o.relu(x),
        lambda o, x, y, z: o.where(o.gt(x, o.constant(0)), x, o.constant(0)),
    ),
    "relu(x) - relu(-x) = x": (
        lambda o, x, y, z: o.sub(o.relu(x), o.relu(o.neg(x))),
        lambda o, x, y, z: x,
    ),
    "relu(x) = (x + |x|) / 2": (
        lambda o, x, y, z: o.relu(x),
        lambda o, x, y, z: o.mul(c(o, 0.5), o.add(x, o.abs(x))),
    ),
    "relu(|x| y) = |x| relu(y)": (
        lambda o, x, y, z: o.relu(o.mul(o.abs(x), y)),
        lambda o, x, y, z: o.mul(o.abs(x), o.relu(y)),
    ),
    "relu(6 x) = 6 relu(x)": (
        lambda o, x, y, z: o.relu(o.mul(c(o, 6), x)),
        lambda o, x, y, z: o.mul(c(o, 6), o.relu(x)),
    ),
    "relu(relu(x)) = relu(x)": (
        lambda o, x, y, z: o.relu(o.relu(x)),
        lambda o, x, y, z: o.relu(x),
    ),
    "clamp(x, -1, 6) = min(max(x, -1), 6)": (
        lambda o, x, y, z: o.clamp(x, -1, 6),
        lambda o, x, y, z: o.minimum(o.maximum(x, c(o, -1)), c(o, 6)),
    ),
    "clamp(x, -1, 6) = max(min(x, 6), -1)": (
        lambda o, x, y, z: o.clamp(x, -1, 6),
        lambda o, x, y, z: o.maximum(o.minimum(x, c(o, 6)), c(o, -1)),
    ),
    "clamp(x, y, y) = y": (lambda o, x, y, z: o.clamp(x, y, y), lambda o, x, y, z: y),
    "(x < y) = (-y < -x)": (
        lambda o, x, y, z: o.lt(x, y),
        lambda o, x, y, z: o.lt(o.neg(y), o.neg(x)),
    ),
    "(x <= y) = 1 - (x > y)": (
        lambda o, x, y, z: o.le(x, y),
        lambda o, x, y, z: o.sub(c(o, 1), o.gt(x, y)),
    ),
    "(x y > 0) = (x > 0)(y > 0) + (x < 0)(y < 0)": (
        lambda o, x, y, z: o.gt(o.mul(x, y), o.constant(0)),
        lambda o, x, y, z: o.add(
            o.mul(o.gt(x, o.constant(0)), o.gt(y, o.constant(0))),
            o.mul(o.lt(x, o.constant(0)), o.lt(y, o.constant(0))),
        ),
    ),
}

EXPONENTIAL_LAWS: dict[str, tuple[Term, Term]] = {
    "exp(max(x, y)) = where(x > y, exp(x), exp(y))": (
        lambda o, x, y, z: o.exp(o.maximum(x, y)),
        lambda o, x, y, z: o.where(o.gt(x, y), o.exp(x), o.exp(y)),
    ),
    "exp(x) exp(y) = exp(x + y)": (
        lambda o, x, y, z: o.mul(o.exp(x), o.exp(y)),
        lambda o, x, y, z: o.exp(o.add(x, y)),
    ),
    "exp(0) = 1": (lambda o, x, y, z: o.exp(o.sub(x, x)), lambda o, x, y, z: c(o, 1)),
    "exp(x) / exp(y) = exp(x - y)": (
        lambda o, x, y, z: o.div(o.exp(x), o.exp(y)),
        lambda o, x, y, z: o.exp(o.sub(x, y)),
    ),
    "exp(x)^3 = exp(3 x)": (
        lambda o, x, y, z: o.pow_const(o.exp(x), 3),
        lambda o, x, y, z: o.exp(o.mul(c(o, 3), x)),
    ),
    "sqrt(exp(x)) = exp(x / 2)": (
        lambda o, x, y, z: o.sqrt(o.exp(x)),
        lambda o, x, y, z: o.exp(o.mul(c(o, 0.5), x)),
    ),
    "exp(x)^-1.7 = exp(-1.7 x)": (
        lambda o, x, y, z: o.pow_const(o.exp(x), -1.7),
        lambda o, x, y, z: o.exp(o.mul(c(o, -1.7), x)),
    ),
    "|exp(x)| = exp(x)": (lambda o, x, y, z: o.abs(o.exp(x)), lambda o, x, y, z: o.exp(x)),
    "relu(exp(exp(x))) = exp(exp(x))": (
        lambda o, x, y, z: o.relu(o.exp(o.exp(x))),
        lambda o, x, y, z: o.exp(o.exp(x)),
    ),
    "exp(-exp(x)) = 1 / exp(exp(x))": (
        lambda o, x, y, z: o.exp(o.neg(o.exp(x))),
        lambda o, x, y, z: o.reciprocal(o.exp(o.exp(x))),
    ),
    "exp(log(exp(x) + exp(y)) + z) = exp(log(exp(x) + exp(y))) exp(z)": (
        lambda o, x, y, z: o.exp(o.add(o.log(o.add(o.exp(x), o.exp(y))), z)),
        lambda o, x, y, z: o.mul(o.exp(o.log(o.add(o.exp(x), o.exp(y)))), o.exp(z)),
    ),
    "x^y x^z = x^(y + z)": (
        lambda o, x, y, z: o.mul(o.pow(x, y), o.pow(x, z)),
        lambda o, x, y, z: o.pow(x, o.add(y, z)),
    ),
    "sum(exp(x - y)) = sum(exp(x)) / exp(y)": (
        lambda o, x, y, z: o.sum(o.exp(o.sub(x, y[:, :1])), 1, keepdims=True),
        lambda o, x, y, z: o.div(o.sum(o.exp(x), 1, keepdims=True), o.exp(y[:, :1])),
    ),
    "softmax(x - y) = softmax(x)": (
        lambda o, x, y, z: softmax(o, o.sub(x, y[:, :1])),
        lambda o, x, y, z: softmax(o, x),
    ),
    "softmax(x - max(x)) = softmax(x)": (
        lambda o, x, y, z: softmax(o, o.sub(x, o.max(x, 1, keepdims=True))),
        lambda o, x, y, z: softmax(o, x),
    ),
    "sigmoid(-x) = 1 - sigmoid(x)": (
        lambda o, x, y, z: o.sigmoid(o.neg(x)),
        lambda o, x, y, z: o.sub(c(o, 1), o.sigmoid(x)),
    ),
    "sigmoid(exp(x)) + sigmoid(-exp(x)) = 1": (
        lambda o, x, y, z: o.add(o.sigmoid(o.exp(x)), o.sigmoid(o.neg(o.exp(x)))),
        lambda o, x, y, z: c(o, 1),
    ),
    "sigmoid(x) = exp(x) / (1 + exp(x))": (
        lambda o, x, y, z: o.sigmoid(x),
        lambda o, x, y, z: o.div(o.exp(x), o.add(c(o, 1), o.exp(x))),
    ),
    "silu(x) = x / (1 + exp(-x))": (
        lambda o, x, y, z: o.silu(x),
        lambda o, x, y, z: o.div(x, o.add(c(o, 1), o.exp(o.neg(x)))),
    ),
    "tanh(-x) = -tanh(x)": (
        lambda o, x, y, z: o.tanh(o.neg(x)),
        lambda o, x, y, z: o.neg(o.tanh(x)),
    ),
    "tanh(x) = (exp(2 x) - 1) / (exp(2 x) + 1)": (
        lambda o, x, y, z: o.tanh(x),
        lambda o, x, y, z: o.div(
            o.sub(o.exp(o.add(x, x)), c(o, 1)), o.add(o.exp(o.add(x, x)), c(o, 1))
        ),
    ),
    "gelu_tanh(x) - gelu_tanh(-x) = x": (
        lambda o, x, y, z: o.sub(o.gelu_tanh(x), o.gelu_tanh(o.neg(x))),
        lambda o, x, y, z: x,
    ),
}


def softmax(ops: NamedOps, x: FieldArray) -> FieldArray:
    weights = ops.exp(x)
    return ops.div(weights, ops.sum(weights, 1, keepdims=True))


# Over the reals these are false, or the two sides are never numbers at once.
FALSE_LAWS: dict[str, tuple[Term, Term]] = {
    "x - y = y - x": (lambda o, x, y, z: o.sub(x, y), lambda o, x, y, z: o.sub(y, x)),
    "exp(x) + exp(y) = exp(x + y)": (
        lambda o, x, y, z: o.add(o.exp(x), o.exp(y)),
        lambda o, x, y, z: o.exp(o.add(x, y)),
    ),
    "exp(x + 1) = 2 exp(x)": (
        lambda o, x, y, z: o.exp(o.add(x, c(o, 1))),
        lambda o, x, y, z: o.mul(c(o, 2), o.exp(x)),
    ),
    "exp(exp(x)) = exp(exp(y))": (
        lambda o, x, y, z: o.exp(o.exp(x)),
        lambda o, x, y, z: o.exp(o.exp(y)),
    ),
    "exp(silu(x)) = silu(exp(x))": (
        lambda o, x, y, z: o.exp(o.silu(x)),
        lambda o, x, y, z: o.silu(o.exp(x)),
    ),
    "sqrt(x - y) = sqrt(y - x)": (
        lambda o, x, y, z: o.sqrt(o.sub(x, y)),
        lambda o, x, y, z: o.sqrt(o.sub(y, x)),
    ),
    "sqrt(x + y) = sqrt(x) + sqrt(y)": (
        lambda o, x, y, z: o.sqrt(o.add(x, y)),
        lambda o, x, y, z: o.add(o.sqrt(x), o.sqrt(y)),
    ),
    "sqrt(x^2) = x": (lambda o, x, y, z: o.sqrt(o.square(x)), lambda o, x, y, z: x),
    "relu(x) = x": (lambda o, x, y, z: o.relu(x), lambda o, x, y, z: x),
    "relu(x) = |x|": (lambda o, x, y, z: o.relu(x), lambda o, x, y, z: o.abs(x)),
    "relu(x + y) = relu(x) + relu(y)": (
        lambda o, x, y, z: o.relu(o.add(x, y)),
        lambda o, x, y, z: o.add(o.relu(x), o.relu(y)),
    ),
    "relu(x y) = relu(x) relu(y)": (
        lambda o, x, y, z: o.relu(o.mul(x, y)),
        lambda o, x, y, z: o.mul(o.relu(x), o.relu(y)),
    ),
    "max(x, y) = min(x, y)": (
        lambda o, x, y, z: o.maximum(x, y),
        lambda o, x, y, z: o.minimum(x, y),
    ),
    "clamp(x, -1, 1) = clamp(x, -2, 2)": (
        lambda o, x, y, z: o.clamp(x, -1, 1),
        lambda o, x, y, z: o.clamp(x, -2, 2),
    ),
    "clamp(x, 1, 3) = clamp(x, 2, 5)": (
        lambda o, x, y, z: o.clamp(x, 1, 3),
        lambda o, x, y, z: o.clamp(x, 2, 5),
    ),
    "max(x y) = max(x) max(y)": (
        lambda o, x, y, z: o.max(o.mul(x, y), 1),
        lambda o, x, y, z: o.mul(o.max(x, 1), o.max(y, 1)),
    ),
    "log(x) = erf(x)": (lambda o, x, y, z: o.log(x), lambda o, x, y, z: o.erf(x)),
    "log(-x) = -log(x)": (
        lambda o, x, y, z: o.log(o.neg(x)),
        lambda o, x, y, z: o.neg(o.log(x)),
    ),
    "gelu(x) = gelu_tanh(x)": (
        lambda o, x, y, z: o.gelu(x),
        lambda o, x, y, z: o.gelu_tanh(x),
    ),
    "silu(x) = sigmoid(x)": (lambda o, x, y, z: o.silu(x), lambda o, x, y, z: o.sigmoid(x)),
    "tanh(x) = sigmoid(x)": (lambda o, x, y, z: o.tanh(x), lambda o, x, y, z: o.sigmoid(x)),
    "x^0.3 = x^0.31": (
        lambda o, x, y, z: o.pow_const(x, 0.3),
        lambda o, x, y, z: o.pow_const(x, 0.31),
    ),
    "x^y = y^x": (lambda o, x, y, z: o.pow(x, y), lambda o, x, y, z: o.pow(y, x)),
    "softmax(x + y) = softmax(x)": (
        lambda o, x, y, z: softmax(o, o.add(x, y)),
        lambda o, x, y, z: softmax(o, x),
    ),
}

ALL_OPS = st.builds(NamedOps, st.sampled_from(FIELDS), st.integers(0, 2**64 - 1))


@st.composite
def operands(draw: st.DrawFn, ops: NamedOps, *, zero: bool, q_part: bool) -> FieldArray:
    """Random elements, some of them exchanged for the residues where things change."""
    choice = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    edges = choice.choice([1, 2, -1, -2, 0] if zero else [1, 2, -1, -2], SHAPE)
    spots = choice.random(SHAPE) < 0.3
    p_numbers, q_numbers = (
        np.where(spots, edges % m, choice.integers(1, m, SHAPE)) for m in (ops.field.p, ops.field.q)
    )
    return FieldArray(p_numbers, q_numbers if q_part else None)


def check(law: tuple[Term, Term], data: st.DataObject, *, zero: bool, q_parts: list[bool]) -> None:
    ops = data.draw(ALL_OPS)
    drawn = [data.draw(operands(ops, zero=zero, q_part=q_part)) for q_part in q_parts]
    try:
        left, right = (side(ops, *drawn) for side in law)
    except DivisionByZero:
        assume(False)
    shape = np.broadcast_shapes(left.shape, right.shape)
    assert ops.equal(left.broadcast(shape), right.broadcast(shape))


Q_PARTS = st.lists(st.booleans(), min_size=3, max_size=3)


@pytest.mark.parametrize("name", [*RING_LAWS, *ROOT_LAWS, *ORDER_LAWS])
@given(data=st.data(), q_parts=Q_PARTS)
def test_law(name: str, data: st.DataObject, q_parts: list[bool]) -> None:
    check((RING_LAWS | ROOT_LAWS | ORDER_LAWS)[name], data, zero=True, q_parts=q_parts)


@pytest.mark.parametrize("name", DIVISION_LAWS)
@given(data=st.data(), q_parts=Q_PARTS)
def test_division_law(name: str, data: st.DataObject, q_parts: list[bool]) -> None:
    check(DIVISION_LAWS[name], data, zero=False, q_parts=q_parts)


@pytest.mark.parametrize("name", EXPONENTIAL_LAWS)
@given(data=st.data())
def test_exponential_law(name: str, data: st.DataObject) -> None:
    check(EXPONENTIAL_LAWS[name], data, zero=True, q_parts=[True] * 3)


@pytest.mark.parametrize("name", FALSE_LAWS)
@given(seed=st.integers(0, 2**64 - 1), field=st.sampled_from(FIELDS))
def test_false_law_fails(name: str, seed: int, field: object) -> None:
    ops = NamedOps(field, seed)
    x, y, z = (ops.random((40, 40), key) for key in "xyz")
    left, right = (side(ops, x, y, z) for side in FALSE_LAWS[name])
    # In the p part alone, so that an exponential on one side does not excuse a coincidence.
    assert not np.array_equal(left.p, right.p)


@given(data=st.data())
def test_root_of_the_square_is_the_absolute_value_modulo_p(data: st.DataObject) -> None:
    ops = data.draw(ALL_OPS)
    x = data.draw(operands(ops, zero=True, q_part=False))
    assert (ops.sqrt(ops.square(x)).p == ops.abs(x).p).all()
    assert (ops.square(ops.sqrt(x)).p == ops.abs(x).p).all()


@given(st.sampled_from(FIELDS), st.data())
def test_rational_constants_are_a_ring_homomorphism(field: object, data: st.DataObject) -> None:
    ops = NamedOps(field, 0)
    a, b = (data.draw(st.fractions(max_denominator=10**6)) for _ in range(2))
    assert ops.equal(ops.add(ops.constant(a), ops.constant(b)), ops.constant(a + b))
    assert ops.equal(ops.mul(ops.constant(a), ops.constant(b)), ops.constant(a * b))
    if b:
        assert ops.equal(ops.div(ops.constant(a), ops.constant(b)), ops.constant(a / b))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_float_constants_are_their_decimal_text(value: float) -> None:
    ops = NamedOps(FIELDS[0], 0)
    assert ops.equal(ops.constant(value), ops.constant(Fraction(str(value))))


@given(st.integers(1, 2**62))
def test_window_plans(exponent: int) -> None:
    plan = window_plan(exponent)
    total = plan.first_digit
    for squarings, digit in plan.steps:
        total = (total << squarings) + digit
    assert total == exponent


@given(
    st.fractions(min_value=0, max_value=8, max_denominator=16),
    st.fractions(min_value=0, max_value=8, max_denominator=16),
    st.sampled_from([m for field in FIELDS for m in (field.p, field.q)]),
)
def test_rational_exponents_add_up_to_sign(r: Fraction, s: Fraction, m: int) -> None:
    exponents = [rational_exponent(t, m) for t in (r, s, r + s)]
    assume(None not in exponents)
    first, second, both = exponents
    assert (first + second - both) % ((m - 1) // 2) == 0


@given(st.data())
def test_contract_is_the_sum_of_products(data: st.DataObject) -> None:
    ops = data.draw(ALL_OPS)
    rank = data.draw(st.integers(1, 4))
    full = [data.draw(st.sampled_from([1, 2, 3, 7, 12])) for _ in range(rank)]
    shapes = [[extent if data.draw(st.booleans()) else 1 for extent in full] for _ in range(2)]
    axes = sorted(data.draw(st.sets(st.integers(0, rank - 1))))
    keepdims = data.draw(st.booleans())
    a, b = ops.random(shapes[0], "a"), ops.random(shapes[1], "b")
    expected = ops.sum(ops.mul(a, b), axes, keepdims)
    assert ops.contract(a, b, axes, keepdims).fingerprint() == expected.fingerprint()
