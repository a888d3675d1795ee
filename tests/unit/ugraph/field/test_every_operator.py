"""Every operator of the table has a value over the field, and it is the one that it should have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from field_reference import Pair, Reference

from mirage_py.errors import UnsupportedError
from mirage_py.ugraph.field import FIELDS, DivisionByZero, FieldArray, FieldOps
from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.interpret.meaning import FieldMeaning
from mirage_py.ugraph.operators import all_operators, operator
from mirage_py.ugraph.text.text_form import parse_program, parse_ugraph

SEED = 21
VALUED = tuple(o.name for o in all_operators() if o.over_field is not None)

# Operators without a row over the field: what gives each its value, by the name of a test below.
INTERPRETED = {
    "load": "test_leaves",
    "read": "test_a_value_read_at_other_indices",
    "const": "test_leaves",
    "size": "test_leaves",
    "index": "test_leaves",
    "mask": "test_leaves",
    "sum": "test_reductions_and_products",
    "max": "test_reductions_and_products",
    "matmul": "test_reductions_and_products",
    "shift": "test_shifts_are_random_and_only_their_exponents_are_of_use",
    "accum_sum": "test_accumulators",
    "accum_max": "test_accumulators",
    "accum_rescaled": "test_a_rescaled_accumulator",
    "store": "test_accumulators",
    "store_add": "test_atomic_sums",
}


def test_no_operator_is_without_a_field_value() -> None:
    """A new operator needs a row over the field and a line of the reference, or a test here."""
    names = [o.name for o in all_operators()]
    assert sorted((*VALUED, *INTERPRETED)) == sorted(names)
    assert [name for name in VALUED if not hasattr(Reference, name)] == []
    assert [test for test in INTERPRETED.values() if test not in globals()] == []


@pytest.mark.parametrize("name", INTERPRETED)
def test_what_only_the_interpreter_knows_is_refused_as_elementwise(name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"'{name}' is not an elementwise operator"):
        FieldMeaning(FieldOps(FIELDS[0], 1)).apply(name, None, ())


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_what_is_no_number_has_no_value(value: float) -> None:
    with pytest.raises(UnsupportedError, match="has no value in a finite field"):
        FieldMeaning(FieldOps(FIELDS[0], 1)).const(value)


def test_minus_infinity_is_a_number_like_no_other() -> None:
    meaning = FieldMeaning(FieldOps(FIELDS[0], 1))
    found = meaning.const(float("-inf"))
    for number in (0.0, 1.0, -1.0, -1e9, -3.4028234663852886e38, -65504.0):
        assert not meaning.ops.equal(found, meaning.const(number))
    assert meaning.ops.equal(found, meaning.const(float("-inf")))


@pytest.fixture(params=FIELDS, ids=["first", "second"])
def ops(request: pytest.FixtureRequest) -> FieldOps:
    return FieldOps(request.param, SEED)


@pytest.fixture
def reference(ops: FieldOps) -> Reference:
    base = int(ops.exp(ops.constant(1)).p)
    assert base != 1
    assert pow(base, ops.field.q, ops.field.p) == 1
    return Reference(ops.field, SEED, base)


def operand(ops: FieldOps, number: int, *, has_q: bool) -> FieldArray:
    """Edges of the range and small whole numbers, then random elements; none is 0 in one part."""
    p, q = ops.field.p, ops.field.q
    edges = np.roll([1, 2, 3, -1, -2, 1 << 24, (1 << 24) + 1, 1 << 29, -(1 << 29)], number)
    drawn = ops.random((40,), f"operand {number}")
    assert drawn.q is not None
    p_part = np.concatenate([edges % p, drawn.p])
    return FieldArray(p_part, np.concatenate([edges % q, drawn.q]) if has_q else None)


def pairs(x: FieldArray) -> list[Pair]:
    flat = x.reshape((-1,))
    if flat.q is None:
        return [(p, None) for p in flat.p.tolist()]
    return list(zip(flat.p.tolist(), flat.q.tolist(), strict=True))


@pytest.mark.parametrize("has_q", [True, False], ids=["q part", "no q part"])
@pytest.mark.parametrize("name", VALUED)
def test_elementwise(name: str, has_q: bool, ops: FieldOps, reference: Reference) -> None:
    arity = operator(name).arity
    args = [operand(ops, n, has_q=has_q) for n in range(arity)]
    if name == "where":  # of truth values and of others
        bits = ops.random_bits(args[1].shape, "condition")
        args[0] = FieldArray(np.where(bits.p > 0, args[0].p, bits.q), None)
    if arity == 2:  # each with each, so that equal ones meet too
        args = [args[0][:, None], operand(ops, 0, has_q=has_q)[None, :]]
    found = FieldMeaning(ops).apply(name, None, args)
    shape = np.broadcast_shapes(*(a.shape for a in args))
    rows = zip(*(pairs(a.broadcast(shape)) for a in args), strict=True)
    expected = [getattr(reference, name)(*row) for row in rows]
    assert found.shape == shape
    assert pairs(found) == expected


@pytest.mark.parametrize("name", [n for n in VALUED if n not in ("div", "rsqrt")])
def test_zero(name: str, ops: FieldOps, reference: Reference) -> None:
    zero = ops.constant(0).broadcast((3,))
    found = FieldMeaning(ops).apply(name, None, [zero] * operator(name).arity)
    expected = getattr(reference, name)(*[(0, 0)] * operator(name).arity)
    assert pairs(found) == [expected] * 3


@pytest.mark.parametrize("name", ["div", "rsqrt"])
def test_what_divides_by_zero_asks_for_another_draw(name: str, ops: FieldOps) -> None:
    with pytest.raises(DivisionByZero):
        FieldMeaning(ops).apply(name, None, [ops.constant(0)] * operator(name).arity)


def test_the_law_of_exp(ops: FieldOps) -> None:
    """exp(a) exp(b) = exp(a + b) with q parts; without, exp(-a) = 1 / exp(a) and no more."""
    a, b = operand(ops, 0, has_q=True), operand(ops, 1, has_q=True)
    assert ops.equal(ops.mul(ops.exp(a), ops.exp(b)), ops.exp(ops.add(a, b)))
    # Past the edges, among which are 1 and -1.
    a, b = FieldArray(a.p[9:], None), FieldArray(b.p[9:], None)
    assert not (ops.mul(ops.exp(a), ops.exp(b)).p == ops.exp(ops.add(a, b)).p).any()
    assert ops.equal(ops.exp(ops.neg(a)), ops.reciprocal(ops.exp(a)))


def test_the_laws_of_a_random_order(ops: FieldOps) -> None:
    x = operand(ops, 0, has_q=True)
    a, b, c = x[:, None, None], x[None, :, None], x[None, None, :]
    both = ops.maximum(a, b)
    assert ops.equal(ops.maximum(both, c), ops.maximum(a, ops.maximum(b, c)))
    assert ops.equal(both, ops.maximum(b, a))
    assert ops.equal(ops.maximum(x, x), x)
    assert ops.equal(ops.minimum(a, b), ops.neg(ops.maximum(ops.neg(a), ops.neg(b))))
    le, lt = ops.le(a, b).p[..., 0], ops.lt(a, b).p[..., 0]
    same = x.p[:, None] == x.p
    assert (le & le.T == same).all()
    assert (le | le.T == 1).all()
    assert (lt == (le & ~same)).all()
    assert (le[:, :, None] & le[None, :, :] <= le[:, None, :]).all()
    assert (ops.ge(a, b).p[..., 0] == le.T).all()
    assert (ops.gt(a, b).p[..., 0] == lt.T).all()
    assert ops.equal(
        ops.add(ops.eq(a, b), ops.ne(a, b)), ops.constant(1).broadcast(le.shape + (1,))
    )


def inputs(ops: FieldOps, **shapes: Sequence[int]) -> dict[str, FieldArray]:
    return {name: ops.random(shape, name) for name, shape in shapes.items()}


def each_part(ops: FieldOps, *arrays: FieldArray) -> list[tuple[Any, ...]]:
    """(modulus, arrays of Python integers) for p and for q."""
    p_parts = [a.p.astype(object) for a in arrays]
    q_parts = [a.q.astype(object) for a in arrays if a.q is not None]
    return [(ops.field.p, *p_parts), (ops.field.q, *q_parts)]


def parts(x: FieldArray) -> tuple[Any, Any]:
    assert x.q is not None
    return x.p, x.q


def test_a_value_read_at_other_indices(ops: FieldOps) -> None:
    program = parse_program("""
        program windows
        dim i = 4
        dim k = 3
        dim n = 6
        input X[6] : f32
        output Y[4, 3] : f32
        %0 = load X[n]
        %1 = square %0
        %2 = read %1[i + k]
        return Y[i, k] = %2
    """)
    x = ops.random((6,), "x")
    found = evaluate_program(program, {"X": x}, FieldMeaning(ops))["Y"]
    places = np.arange(4)[:, None] + np.arange(3)
    assert ops.equal(found, ops.square(x)[places])


def test_leaves(ops: FieldOps) -> None:
    program = parse_program("""
        program leaves
        dim i = 5
        dim j = 7
        input X[12, 7] : f32
        output Y[5, 7] : f32
        %0 = load X[i * 2 + 1, j]
        %1 = const -0.3
        %2 = size j
        %3 = index i * 3 + j
        %4 = mask (j <= i + 1)
        %5 = mul %0, %1
        %6 = add %5, %2
        %7 = add %6, %3
        %8 = mul %4, %7
        return Y[i, j] = %8
        """)
    given = inputs(ops, X=(12, 7))
    found = parts(evaluate_program(program, given, FieldMeaning(ops))["Y"])
    for part, (m, x) in zip(found, each_part(ops, given["X"]), strict=True):
        for i in range(5):
            for j in range(7):
                value = x[2 * i + 1, j] * -3 * pow(10, -1, m) + 7 + 3 * i + j
                assert part[i, j] == (value % m if j <= i + 1 else 0)


def test_reductions_and_products(ops: FieldOps, reference: Reference) -> None:
    program = parse_program("""
        program reduced
        dim i = 5
        dim j = 6
        dim k = 7
        input X[5, 7] : f32
        input W[7, 6] : f32
        output S[5] : f32
        output M[5] : f32
        output P[5, 6] : f32
        %0 = load X[i, k]
        %1 = load W[k, j]
        %2 = sum[k] %0
        %3 = max[k] %0
        %4 = matmul[k] %0, %1
        return S[i] = %2
        return M[i] = %3
        return P[i, j] = %4
        """)
    given = inputs(ops, X=(5, 7), W=(7, 6))
    found = evaluate_program(program, given, FieldMeaning(ops))
    for n, (m, x, w) in enumerate(each_part(ops, given["X"], given["W"])):
        assert (parts(found["S"])[n] == x.sum(1) % m).all()
        assert (parts(found["P"])[n] == x @ w % m).all()
    rows = [pairs(given["X"][i]) for i in range(5)]
    assert pairs(found["M"]) == [max(row, key=reference.rank) for row in rows]


ACCUMULATED = """
ugraph accumulated
dim i = 5
dim k = 7
input X[5, 7] : f32
output S[5] : f32
output M[5] : f32
program {
  %0 = load X[i, k]
  %1 = sum[k] %0
  %2 = max[k] %0
  return S[i] = %1
  return M[i] = %2
}
kernel both {
  grid i by 2
  loop k by 3 {
    %0 = load X[i, k]
    %1 = sum[k] %0
    %2 = accum_sum %1
    %3 = max[k] %0
    %4 = accum_max %3
  }
  store S[i] = %2
  store M[i] = %4
}
"""


def test_accumulators(ops: FieldOps, reference: Reference) -> None:
    given = inputs(ops, X=(5, 7))
    found = evaluate_ugraph(parse_ugraph(ACCUMULATED), given, FieldMeaning(ops))
    for n, (m, x) in enumerate(each_part(ops, given["X"])):
        assert (parts(found["S"])[n] == x.sum(1) % m).all()
    rows = [pairs(given["X"][i]) for i in range(5)]
    assert pairs(found["M"]) == [max(row, key=reference.rank) for row in rows]


ADDED = """
ugraph added
dim i = 5
dim part = 3
dim k = 4
input X[5, 12] : f32
output S[5] : f32
program {
  %0 = load X[i, part * 4 + k]
  %1 = sum[part, k] %0
  return S[i] = %1
}
kernel parts {
  grid i by 2, part by 2
  %0 = load X[i, part * 4 + k]
  %1 = sum[k] %0
  store_add S[i] = %1
}
"""


def test_atomic_sums(ops: FieldOps) -> None:
    given = inputs(ops, X=(5, 12))
    found = evaluate_ugraph(parse_ugraph(ADDED), given, FieldMeaning(ops))["S"]
    for n, (m, x) in enumerate(each_part(ops, given["X"])):
        assert (parts(found)[n] == x.sum(1) % m).all()


def test_shifts_are_random_and_only_their_exponents_are_of_use(ops: FieldOps) -> None:
    meaning, x = FieldMeaning(ops), ops.random((4, 1), "x")
    first, again, other = (meaning.shift(x, key) for key in ("a", "a", "b"))
    assert first.shape == x.shape
    assert ops.equal(first, again)
    assert not (first.p == other.p).any()
    assert not (first.p == x.p).any()
    # It is a function of the key alone: a value of x that gets through it would be seen.
    assert ops.equal(first, meaning.shift(ops.neg(x), "a"))


RESCALED = """
ugraph rescaled
dim i = 5
dim k = 7
input X[5, 7] : f32
output E[5] : f32
program {
  %0 = load X[i, k]
  %1 = exp %0
  %2 = sum[k] %1
  %3 = div %1, %2
  %4 = mul %3, %0
  %5 = sum[k] %4
  return E[i] = %5
}
kernel online {
  grid i by 2
  loop k by 3 {
    %0 = load X[i, k]
    %1 = max[k] %0
    %2 = accum_max[shift] %1
    %3 = sub %0, %2
    %4 = exp %3
    %5 = sum[k] %4
    %6 = accum_rescaled[1] %5, %2
    %7 = mul %4, %0
    %8 = sum[k] %7
    %9 = accum_rescaled[1] %8, %2
  }
  %10 = div %9, %6
  store E[i] = %10
}
"""


def test_a_rescaled_accumulator(ops: FieldOps, reference: Reference) -> None:
    """sum(x exp(x)) / sum(exp(x)), directly: the shifts of the loop leave no trace."""
    given = inputs(ops, X=(5, 7))
    found = evaluate_ugraph(parse_ugraph(RESCALED), given, FieldMeaning(ops))["E"]
    p = ops.field.p
    for i in range(5):
        row = pairs(given["X"][i])
        powers = [pow(reference.base, q or 0, p) for _, q in row]
        top = sum(x * power for (x, _), power in zip(row, powers, strict=True))
        assert int(found.p[i]) == top * pow(sum(powers), -1, p) % p


def test_the_least_magnitude_is_not_zero(ops: FieldOps, reference: Reference) -> None:
    """The one element of 2^30 whose key would be that of 0, were keys not counted from 1."""
    least = reference.key(f"order {ops.field.p}") & ((1 << 30) - 1)
    assert least <= ops.field.p // 2
    x, zero = FieldArray(np.array([least, ops.field.p - least]), None), ops.constant(0)
    assert (ops.lt(x, zero).p + ops.gt(x, zero).p == 1).all()
    assert [reference.rank(pair) for pair in pairs(x)] in ([1, -1], [-1, 1])
