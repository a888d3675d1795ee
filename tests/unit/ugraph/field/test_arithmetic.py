from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from field_reference import NamedOps

from mirage_py.ugraph.field import FIELDS, DivisionByZero, FieldArray

SMOOTH = [
    "exp",
    "expm1",
    "log",
    "log1p",
    "erf",
    "sqrt",
    "rsqrt",
    "sigmoid",
    "silu",
    "tanh",
    "gelu",
    "gelu_tanh",
]


@pytest.fixture(params=FIELDS, ids=["first", "second"])
def ops(request: pytest.FixtureRequest) -> NamedOps:
    return NamedOps(request.param, 13)


def test_exp_is_a_power_of_one_root_of_unity(ops: NamedOps) -> None:
    field = ops.field
    base = int(ops.exp(ops.constant(1)).p)
    assert base != 1
    assert pow(base, field.q, field.p) == 1
    x = ops.random((100,), "x")
    assert x.q is not None
    assert ops.exp(x).p.tolist() == [pow(base, e, field.p) for e in x.q.tolist()]
    assert ops.exp(x).q is None


def test_the_root_of_unity_depends_on_the_seed() -> None:
    for field in FIELDS:
        roots = [int(NamedOps(field, s).exp(NamedOps(field, s).constant(1)).p) for s in range(20)]
        assert len(set(roots)) == 20


def test_exp_without_a_q_part_is_keyed(ops: NamedOps) -> None:
    x = ops.exp(ops.random((500,), "x"))
    twice = ops.exp(x)
    assert twice.q is None
    assert len(np.unique(twice.p)) == 500
    assert ops.equal(twice, ops.exp(FieldArray(x.p.copy(), None)))
    # The published verifier finds every exp(exp(.)) equal to every other.
    y = ops.exp(ops.random((500,), "y"))
    assert not (twice.p == ops.exp(y).p).any()
    assert ops.equal(ops.exp(ops.neg(x)), ops.reciprocal(twice))
    assert ops.equal(ops.exp(ops.sub(x, x)), ops.constant(1).broadcast((500,)))


@pytest.mark.parametrize("name", ["p", "q"])
def test_sqrt_follows_python_integers(ops: NamedOps, name: str) -> None:
    m = getattr(ops.field, name)
    x = ops.random((100,), "x")
    squares = getattr(ops.square(x), name).tolist()
    roots = getattr(ops.sqrt(ops.square(x)), name).tolist()
    assert [root * root % m for root in roots] == squares
    assert roots == [pow(square, (m + 1) // 4, m) for square in squares]
    inverse_roots = getattr(ops.rsqrt(ops.square(x)), name).tolist()
    assert inverse_roots == [pow(root, -1, m) for root in roots]


def test_sqrt_tells_swapped_operands_apart(ops: NamedOps) -> None:
    a, b = ops.random((50,), "a"), ops.random((50,), "b")
    one, other = ops.sqrt(ops.sub(a, b)), ops.sqrt(ops.sub(b, a))
    assert not (one.p == other.p).any()
    assert not (one.q == other.q).any()


@pytest.mark.parametrize(
    "exponent", [0, 1, 2, 3, 7, 0.5, 1.5, 2.5, 0.25, 0.3, 1.7, Fraction(1, 3), 2.718281828459045]
)
def test_constant_powers(ops: NamedOps, exponent: float) -> None:
    x, y = ops.random((60,), "x"), ops.random((60,), "y")
    powered = ops.pow_const(x, exponent)
    assert powered.q is not None
    assert ops.equal(
        ops.pow_const(ops.mul(x, y), exponent), ops.mul(powered, ops.pow_const(y, exponent))
    )
    negative = -exponent
    assert ops.equal(ops.pow_const(x, negative), ops.reciprocal(powered))
    r = Fraction(str(exponent))
    assert ops.equal(ops.pow_const(ops.exp(x), exponent), ops.exp(ops.mul(ops.constant(r), x)))


def test_constant_powers_are_products_and_roots(ops: NamedOps) -> None:
    x = ops.random((60,), "x")
    one = ops.constant(1).broadcast((60,))
    for exponent, expected in [
        (0, one),
        (1, x),
        (2, ops.square(x)),
        (3.0, ops.mul(x, ops.square(x))),
        (-1, ops.reciprocal(x)),
        (0.5, ops.sqrt(x)),
        (-0.5, ops.rsqrt(x)),
        (-0.5, ops.div(one, ops.sqrt(x))),
        (1.5, ops.mul(x, ops.sqrt(x))),
        (-1.5, ops.reciprocal(ops.mul(x, ops.sqrt(x)))),
        (2.5, ops.mul(ops.square(x), ops.sqrt(x))),
        (0.25, ops.sqrt(ops.sqrt(x))),
    ]:
        assert ops.equal(ops.pow_const(x, exponent), expected), exponent


def test_powers_without_an_exponent_in_the_field_are_keyed(ops: NamedOps) -> None:
    half = (ops.field.q - 1) // 2
    factor = next((d for d in range(3, 1 << 16, 2) if half % d == 0), half)
    x, r = ops.random((60,), "x"), Fraction(1, factor)
    powered = ops.pow_const(x, r)
    assert powered.q is None
    assert ops.equal(powered, ops.pow(x, ops.constant(r)))
    assert len(np.unique(powered.p)) == 60


def test_negative_powers_of_zero(ops: NamedOps) -> None:
    zero = ops.constant(0)
    assert ops.equal(ops.sqrt(zero), zero)
    for exponent in (-1, -0.5, -0.3):
        with pytest.raises(DivisionByZero):
            ops.pow_const(zero, exponent)
    with pytest.raises(DivisionByZero):
        ops.rsqrt(zero)


def test_keyed_functions(ops: NamedOps) -> None:
    x, y = ops.random((300,), "x"), ops.random((300,), "y")
    results = [
        ops.keyed("f", x),
        ops.keyed("g", x),
        ops.keyed("f", y),
        ops.keyed("f", x, y),
        ops.keyed("f", y, x),
        ops.log(x),
        ops.erf(x),
        NamedOps(ops.field, 14).keyed("f", x),
    ]
    for i, one in enumerate(results):
        assert one.q is not None
        assert one.p.max() < ops.field.p
        assert one.q.max() < ops.field.q
        for other in results[:i]:
            assert not (one.p == other.p).any()
            assert not (one.q == other.q).any()
    assert ops.keyed("f", x[:, None], y).shape == (300, 300)
    assert ops.keyed("f", ops.constant(1)).shape == ()


def test_keyed_functions_see_the_p_part_only(ops: NamedOps) -> None:
    x = ops.random((300,), "x")
    bare = FieldArray(x.p, None)
    assert ops.log(bare).fingerprint() == ops.log(x).fingerprint()
    assert ops.erf(bare).fingerprint() == ops.erf(x).fingerprint()


def test_expansions(ops: NamedOps) -> None:
    x = ops.random((100,), "x")
    one, two, half = ops.constant(1), ops.constant(2), ops.constant(0.5)
    sigmoid = ops.div(one, ops.add(one, ops.exp(ops.neg(x))))
    rise, fall = ops.exp(x), ops.exp(ops.neg(x))
    cubic = ops.add(x, ops.mul(ops.constant(0.044715), ops.pow_const(x, 3)))
    inner = ops.mul(ops.constant(0.7978845608028654), cubic)
    for result, expected in [
        (ops.sigmoid(x), sigmoid),
        (ops.silu(x), ops.mul(x, sigmoid)),
        (ops.tanh(x), ops.div(ops.sub(rise, fall), ops.add(rise, fall))),
        (ops.gelu_tanh(x), ops.mul(ops.mul(half, x), ops.add(one, ops.tanh(inner)))),
        (ops.gelu_tanh(x), ops.mul(x, ops.sigmoid(ops.mul(two, inner)))),
        (ops.gelu(x), ops.mul(ops.mul(half, x), ops.add(one, ops.erf(ops.div(x, ops.sqrt(two)))))),
    ]:
        assert ops.equal(result, expected)


def test_deterministic(ops: NamedOps) -> None:
    again = NamedOps(ops.field, ops.seed)
    for name in (*SMOOTH, "abs", "relu"):
        results = [getattr(o, name)(o.random((50,), "x")) for o in (ops, again)]
        assert results[0].fingerprint() == results[1].fingerprint()


def test_scalars_and_empty_arrays(ops: NamedOps) -> None:
    unary = [*SMOOTH, "abs", "relu", "neg", "square", "reciprocal"]
    for shape in ((), (0,), (2, 0)):
        x = ops.random(shape, "x")
        for name in unary:
            result = getattr(ops, name)(x)
            assert isinstance(result.p, np.ndarray)
            assert result.shape == shape
        assert ops.pow(x, x).shape == shape
        assert ops.maximum(x, x).shape == shape


@pytest.mark.parametrize("seed", [0, 13, 1 << 32, (1 << 64) - 3, -1])
def test_random_elements_are_those_of_the_seed_of_numpy(ops: NamedOps, seed: int) -> None:
    """So that what a seed found, it finds in every version."""
    words = [seed % (1 << 64), ops.field.p, *b"elements", 0, *"\u00b5 3".encode()]
    draw = np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))
    x = NamedOps(ops.field, seed).random((4, 3), "\u00b5 3")
    assert np.array_equal(x.p, draw.integers(1, ops.field.p, size=(4, 3)))
    assert np.array_equal(x.q, draw.integers(1, ops.field.q, size=(4, 3)))
