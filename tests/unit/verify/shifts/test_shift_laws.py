"""Field arithmetic that keeps shifts apart: the same numbers, and the laws of log and exp."""

from __future__ import annotations

import pytest
import samples

from mirage_py.ugraph.field import FIELDS, FieldArray, FieldOps
from mirage_py.ugraph.interpret import evaluate_ugraph
from mirage_py.ugraph.interpret.meaning import FieldMeaning
from mirage_py.verify.shifts.shift_laws import Shifted, ShiftLaws
from mirage_py.verify.sizes.shrink import fixed_dims, shrink_ugraph
from mirage_py.verify.sizes.small_sizes import instantiate_small, small_extents

SHAPE = (3, 4)


@pytest.fixture
def laws() -> ShiftLaws:
    return ShiftLaws(FieldMeaning(FieldOps(FIELDS[0], 5)))


def equal(laws: ShiftLaws, left: Shifted, right: Shifted) -> bool:
    shape = laws.plain(left).shape
    return laws.ops.equal(laws.plain(left), laws.plain(right).broadcast(shape))


def drawn(laws: ShiftLaws, key: str, shape: tuple[int, ...] = SHAPE) -> Shifted:
    return Shifted(laws.ops.random(shape, key))


def shift(laws: ShiftLaws, key: str = "m", shape: tuple[int, ...] = (3, 1)) -> Shifted:
    return laws.free(laws.ops.random(shape, key))


@pytest.mark.parametrize("name", sorted(samples.TEXTS))
def test_the_numbers_are_the_same(name: str) -> None:
    graph = samples.ugraph(name)
    extents = small_extents(graph.program, 1, fixed_dims(graph.program, graph.kernels))
    small = instantiate_small(shrink_ugraph(graph, extents))
    ops = FieldOps(FIELDS[1], 3)
    inputs = samples.field_inputs(small.program, ops)
    expected = evaluate_ugraph(small, inputs, FieldMeaning(ops))
    laws = ShiftLaws(FieldMeaning(ops))
    found = evaluate_ugraph(small, {n: Shifted(x) for n, x in inputs.items()}, laws)
    for output, value in expected.items():
        assert ops.equal(laws.plain(found[output]), value)


def scaled(laws: ShiftLaws, key: str = "x") -> tuple[Shifted, Shifted]:
    """exp(x) and exp(x - m)."""
    x = drawn(laws, key)
    shifted = laws.apply("sub", None, [x, shift(laws)])
    return laws.apply("exp", None, [x]), laws.apply("exp", None, [shifted])


def test_a_log_takes_out_what_the_exponential_has(laws: ShiftLaws) -> None:
    whole, part = (laws.apply("log", None, [laws.sum(e, (1,))]) for e in scaled(laws))
    m = shift(laws)
    assert equal(laws, laws.apply("add", None, [part, m]), whole)
    assert not equal(laws, part, whole)
    assert not equal(laws, laws.apply("sub", None, [part, m]), whole)
    twice = laws.apply("add", None, [laws.apply("add", None, [part, m]), m])
    assert not equal(laws, twice, whole)
    other = laws.apply("add", None, [part, shift(laws, "another")])
    assert not equal(laws, other, whole)


@pytest.mark.parametrize(("op", "power"), [("square", 2.0), ("sqrt", 0.5), ("rsqrt", -0.5)])
def test_powers_scale_what_is_taken_out(laws: ShiftLaws, op: str, power: float) -> None:
    whole, part = (
        laws.apply("log", None, [laws.apply(op, None, [laws.sum(e, (1,))])]) for e in scaled(laws)
    )
    exponent = Shifted(laws.ops.constant(power).broadcast((1, 1)))
    given_back = laws.apply("mul", None, [shift(laws), exponent])
    assert equal(laws, laws.apply("add", None, [part, given_back]), whole)
    assert not equal(laws, laws.apply("add", None, [part, shift(laws)]), whole)


def test_an_exp_of_an_exponential_takes_a_shift_out(laws: ShiftLaws) -> None:
    bent = laws.apply("tanh", None, [drawn(laws, "x")])
    assert bent.kept.q is None
    shifted = laws.apply("exp", None, [laws.apply("sub", None, [bent, shift(laws)])])
    back = laws.apply("exp", None, [shift(laws)])
    product = laws.apply("mul", None, [shifted, back])
    assert equal(laws, product, laws.apply("exp", None, [bent]))


def test_sums_along_which_a_shift_varies(laws: ShiftLaws) -> None:
    """No law holds there, so the number depends on the shift."""
    x, m = drawn(laws, "x"), shift(laws, "varying", SHAPE)
    exponent = laws.apply("sub", None, [x, m])
    total = laws.sum(laws.apply("exp", None, [exponent]), (1,))
    assert total.by is None
    number = laws.ops.exp(laws.plain(exponent))
    expected = Shifted(laws.ops.sum(number, (1,), keepdims=True))
    assert equal(laws, total, expected)


def test_sums_of_values_with_other_scales(laws: ShiftLaws) -> None:
    whole, part = scaled(laws)
    mixed = laws.apply("add", None, [whole, part])
    assert mixed.by is None
    numbers = [Shifted(laws.plain(v)) for v in (whole, part)]
    assert equal(laws, mixed, laws.apply("add", None, numbers))


def test_what_a_mask_leaves_is_scaled_as_the_rest(laws: ShiftLaws) -> None:
    _, part = scaled(laws)
    mask = Shifted(laws.ops.random_bits(SHAPE, "mask"))
    zero = Shifted(laws.ops.constant(0).broadcast((1, 1)))
    chosen = laws.apply("where", None, [mask, part, zero])
    assert chosen.is_scaled
    assert equal(laws, chosen, laws.select(mask, part))


def test_buffers_keep_shifts(laws: ShiftLaws) -> None:
    _, part = scaled(laws)
    m = shift(laws)
    buffer = laws.buffer(SHAPE)
    buffer.write((slice(0, 2), slice(None)), rows(part, 0, 2))
    buffer.write((slice(2, 3), slice(None)), Shifted(laws.plain(rows(part, 2, 3))))
    assert not buffer.missing()
    assert equal(laws, buffer.read(), part)
    mixed = laws.buffer((3, 2))
    mixed.write((slice(None), slice(0, 1)), m)
    mixed.write((slice(None), slice(1, 2)), laws.apply("exp", None, [m]))
    found = laws.plain(mixed.read())
    assert laws.ops.equal(found[:, :1], laws.plain(m))
    exp = laws.ops.exp(laws.plain(m))
    assert laws.ops.equal(FieldArray(found.p[:, 1:], None), exp)


def rows(x: Shifted, start: int, stop: int) -> Shifted:
    assert x.by is not None
    by = x.by.broadcast(x.kept.shape)[start:stop]
    return Shifted(x.kept[start:stop], by, x.is_scaled)
