"""Integers as data: masks, quantised weights, labels; and what would wrap around."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch.trace import trace
from mirage_py.runtime.eager.eager_source import torch_function

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, m: x.masked_fill(m[:, None] == 0, -1e4).softmax(-1),
        lambda x, m: (x + (1 - m[:, None].float()) * -1e4).softmax(-1),
        lambda x, m: torch.where(m[:, None] > 1, x, -x) * m.to(x.dtype)[:, None],
        lambda x, m: (x * m[:, None]).sum(-1) / m.bool().sum(-1)[:, None],
        lambda x, m: x * (m[:, None] != m[:, :1, None]),
        lambda x, m: x + m.bool()[:, None] * m.max(),
    ],
)
def test_numbers(agrees, x, fn, dtype):
    m = torch.tensor([[0, 1, 1, 3, 0, 1, 2], [1, 1, 0, 0, 2, 1, 1], [1, 0, 0, 0, 0, 0, 0]])
    traced = agrees(fn, x, m.to(dtype), single=True)
    got = torch_function(traced.program)(*traced.inputs([x, m.to(dtype)]))
    torch.testing.assert_close(got, fn(x, m.to(dtype)), atol=1e-5, rtol=1e-5)


def test_quantised_weights(agrees):
    w = torch.randint(-128, 128, (6, 8), dtype=torch.int8)
    x, s = torch.randn(3, 8), torch.rand(6)
    agrees(lambda x, w, s: F.linear(x, w.to(x.dtype)) * s, x, w, s)
    # bfloat16 holds every number of eight bits: nothing is rounded, and no cast is left.
    program = trace(lambda x, w: F.linear(x, w.to(x.dtype)), x.bfloat16(), w)
    assert all(n.op != "cast" for n in program.nodes)
    program = trace(lambda x, w: F.linear(x, w.to(x.dtype)), x.bfloat16(), w.long())
    assert any(n.op == "cast" for n in program.nodes)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, m: x * (m + m).float(),
        lambda x, m: x * m.sum(-1, keepdim=True, dtype=torch.int8),
        lambda x, m: x * (-m).float(),
        lambda x, m: x * (m.to(torch.int32) @ m.to(torch.int32).T @ m.to(torch.int32)),
    ],
)
def test_what_would_wrap_around_is_refused(fn):
    m = torch.ones(4, 4, dtype=torch.int8)
    with pytest.raises(UnsupportedError):
        trace(fn, torch.randn(4, 4), m)


def test_what_cannot_wrap_around_is_taken(agrees):
    m = torch.tensor([[True, False, True], [True, True, False]])
    x = torch.randn(2, 3)
    agrees(lambda x, m: x * (m.to(torch.int8) - 1), x, m)
    i = torch.tensor([[1, 2, 3], [-128, 127, 0]], dtype=torch.int8)
    agrees(lambda x, i: x * (i.int() * i.int() - i), x, i)


def test_floats_as_integers(agrees):
    x = torch.tensor([[2.7, -2.7, 0.3], [-0.9, 5.0, 100.2]])
    agrees(lambda x: x - x.long(), x, single=True)
    agrees(lambda x: x.int() * 0.5, x, single=True)
    agrees(lambda x: x.round().clamp(-128, 127).to(torch.int8) * 0.1, x, single=True)
    agrees(
        lambda x, w: F.linear(x.round().clamp(-8, 7).to(torch.int8).float(), w), x, x, single=True
    )
    with pytest.raises(UnsupportedError, match="int8"):
        trace(lambda x: x.to(torch.int8) * 0.1, x)


@pytest.mark.parametrize("to", [torch.uint8, torch.int8, torch.int16], ids=str)
@pytest.mark.parametrize("have", [torch.int64, torch.int32], ids=str)
def test_integers_of_fewer_bits_have_the_low_ones(have, to):
    edges = [0, 1, 127, 128, 255, 256, -1, -128, -129, 32767, 32768, 2**24 + 1, 2**31 - 1, -(2**31)]
    a = torch.tensor(edges, dtype=have)
    program = trace(lambda a: (a.to(to), a.to(to).float() * 0.5), a)
    found = torch_function(program)(a)
    assert found[0].equal(a.to(to))
    assert found[1].equal(a.to(to).float() * 0.5)


@pytest.mark.parametrize("kind", [torch.uint8, torch.int8, torch.int16, torch.int32], ids=str)
@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: a | b,
        lambda a, b: a ^ (b & 8),
        lambda a, b: (a & 15 | 64, b ^ 3, 5 | a),
        lambda a, b: ((a & 15) << 4 | (b & 15)).float() * 0.5,
        lambda a, b: (a > 3).int() << 9 | (b > 3).int(),
    ],
)
def test_bits_of_integers(fn, kind):
    limits = torch.iinfo(kind)
    a = torch.randint(limits.min, limits.max, (40,), generator=torch.Generator().manual_seed(3))
    a[:2] = torch.tensor([limits.min, limits.max])
    a, b = a.to(kind), a.flip(0).to(kind)
    found = torch_function(trace(fn, a, b))(a, b)
    torch.testing.assert_close(found, fn(a, b), rtol=0, atol=0)


@pytest.mark.parametrize("kind", [torch.uint8, torch.int8, torch.bool], ids=str)
def test_integers_with_all_bits_turned(kind):
    a = torch.arange(-128, 128).to(kind)
    assert torch_function(trace(lambda a: ~a, a))(a).equal(~a)


@pytest.mark.parametrize(
    "fn",
    [
        lambda a: a | 3,
        lambda a: a ^ a.flip(-1),
        lambda a: ~a,
        lambda a: ~a.int(),
        lambda a: a.int() | 2**30,
        lambda a: a << 2,
        lambda a: (a & 255) << 20,
    ],
)
def test_bits_that_float32_does_not_hold_are_refused(fn):
    with pytest.raises(UnsupportedError, match="is not supported here"):
        trace(fn, torch.randint(0, 2**40, (3, 5)))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, z: ((x * 3).round() + z).clamp(0, 15).to(torch.uint8),
        lambda x, z: (x.clamp(0, 1) * 255 + 0.5).to(torch.uint8),
        lambda x, z: x.clamp(-127.5, 127.5).to(torch.int8),
        lambda x, z: (x.clamp(-1, 1) * 127).bfloat16().to(torch.int8),
        lambda x, z: x.clamp(2.5, 3.5).to(torch.int8) + x.clamp(-3.5, -2.5).floor().to(torch.int8),
    ],
)
def test_floats_within_bounds_as_narrow_integers(fn):
    x = torch.tensor([-300.0, -127.5, -3.2, -0.5, -0.0, 0.4, 0.999, 1.0, 2.7, 3.5, 128.0, 1e9])
    for z in (torch.arange(12), torch.arange(12).int(), torch.arange(12) * 0.5):
        program = trace(fn, x, z)
        found = torch_function(program)(*[x, z][: len(program.inputs)])
        assert found.dtype == fn(x, z).dtype
        assert found.equal(fn(x, z))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.to(torch.uint8),
        lambda x: (x.clamp(0, 1) * 256).to(torch.uint8),
        lambda x: x.clamp(-129, 0).to(torch.int8),
        lambda x: (x.clamp(0, 1) * 255).ceil().to(torch.uint8),  # by a rounding error 256
        lambda x: x.long().to(torch.uint8),
    ],
)
def test_floats_that_may_be_out_of_range_are_refused(fn):
    with pytest.raises(UnsupportedError, match="is not supported here"):
        trace(fn, torch.randn(3, 5))


# Neighbours that float32 does not tell apart, or nearly does not.
EDGES = [0, 5, 2**24 - 1, 2**24, 2**24 + 1, 2**31 - 1, 2**31, 2**31 + 1, 2**53 - 1, 2**53, 2**62]


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: a * 50257 + b,
        lambda a, b: (a * 1000003 + 7) % 8192,
        lambda a, b: (a * 3 + b).float(),
        lambda a, b: (a - b).float(),
        lambda a, b: (a - b).abs() < 4,
        lambda a, b: a * 3 == b,
        lambda a, b: a // 2,
        lambda a, b: a % 7 == 0,
        lambda a, b: a.sum(-1),
        lambda a, b: a.sum(-1) > 0,
        lambda a, b: a.sum(-1).bool(),
        lambda a, b: a.sum(-1).clamp(min=1) == b[:, 0],
        lambda a, b: torch.zeros(11)[a.sum(-1)] * 2,
        lambda a, b: a.sum(-1).int() * 0.5,
        lambda a, b: a.cumsum(-1) - 1,
        lambda a, b: (a + b * 3) % 8192,
        lambda a, b: (a + 1) % 6 == b,
        lambda a, b: torch.zeros(11).index_put((a[0] // 4,), a.new_ones(11).float()) * 2,
        lambda a, b: a.argmax(-1),
        lambda a, b: a.sort(-1)[0],
        lambda a, b: a.max(-1)[1],
        lambda a, b: a.topk(2)[1] + 1,
        lambda a, b: -a,
        lambda a, b: a.abs() > 3,
        lambda a, b: a**2 * 0.5,
        lambda a, b: a > 2**24,
        lambda a, b: a == 2**31 + 1,
        lambda a, b: a.clamp(min=5) == b,
        lambda a, b: a + 1 > 2**23,
        lambda a, b: a + 1 > b,
        lambda a, b: a.float() < b.float(),
        lambda a, b: a + 1 == b.float(),
        lambda a, b: a.amax(-1),
        lambda a, b: a.clamp(min=0),
        lambda a, b: torch.where(a > 3, a, -100),
        torch.maximum,
        lambda a, b: a.masked_fill(a == 0, 2**40) == b,
        lambda a, b: a.int() + 1,
        lambda a, b: a.int() > 0,
        lambda a, b: a >> 2,
        lambda a, b: (a >> 30) & 15,
        lambda a, b: torch.where(a > 2, a, b) & 15,
        lambda a, b: torch.arange(11) * 30000000 + (a > 3),
        lambda a, b: (a > 3).sum(-1) * 40000000,
        lambda a, b: a.int() * 100003,
        lambda a, b: (a.int() + 1) > 0,
        lambda a, b: a.index_put((torch.tensor([1]),), b[:1], accumulate=True),
        lambda a, b: (a > 3).long().scatter(1, a[:, :1] * 0, 2**40 + 1),
        lambda a, b: ((a > 3).long() * 1000) & 0x7FFFFFFF,
        lambda a, b: (a.float() * 0.5).long() % (2**25 + 1),
        lambda a, b: (a > 3).long() // (2**25 + 1),
    ],
)
def test_integers_that_float32_does_not_hold_are_refused(fn):
    a = torch.tensor([EDGES, EDGES[::-1]])
    with pytest.raises(UnsupportedError, match="is not supported"):
        trace(fn, a, a + 1)


def test_sums_of_long_rows_of_codes_are_refused():
    codes = torch.full((2, 4096), -128, dtype=torch.int8)
    with pytest.raises(UnsupportedError, match="int64"):
        trace(lambda c: (c.int() * c.int()).sum(-1), codes)


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: a.float() * 0.25,
        lambda a, b: a.bool(),
        lambda a, b: a < 2**24 - 1,
        lambda a, b: (a == 5).long().cumsum(-1) * (b != 5),
        lambda a, b: torch.where(a > 7, b, 0).clamp(0, 100),
        lambda a, b: torch.maximum(a, b) > 6,
        lambda a, b: a.amin(-1) == 0,
        lambda a, b: (1 - a).float() * -1e4,
        lambda a, b: torch.arange(11) == a - 1,
        lambda a, b: (a - 3).clamp(0, 100),
        lambda a, b: a * (b != 5) > 4,
        lambda a, b: a[:, 1:].clone(),
        lambda a, b: (a[:, :-1] != b[:, 1:]).sum(-1),
        lambda a, b: (a[:, :, None] == b[:, None]) & (a[:, None] > 0),
        lambda a, b: a[:, :2].bool(),
        lambda a, b: (a.float() * 0.5).long() % 7,
    ],
)
def test_integers_of_any_size_are_served_where_float32_says_the_same(fn):
    a = torch.tensor([EDGES, EDGES[::-1]])
    b = a.roll(1, 1) + 1
    want = fn(a, b)
    program = trace(fn, a, b)
    given = [{"a": a, "b": b}[t.name] for t in program.inputs]
    got = torch_function(program)(*given)
    torch.testing.assert_close(got.to(want.dtype), want, rtol=2e-7, atol=0)


def test_positions_are_computed_with_integers(agrees):
    # Whatever the numbers, torch reads where they are positions.
    table, at = torch.randn(40, 3), torch.tensor([[0, 3], [7, 2]])
    agrees(lambda w, i: w[i * 4 + torch.arange(2)], table, at)
    agrees(lambda w, i: w[(i - 1).clamp(min=0)], table, at)
    agrees(lambda w, i: w[torch.maximum(i, i.flip(0))], table, at)
    with pytest.raises(UnsupportedError, match="larger of two"):
        trace(lambda w, i: w[(i * 3 + i).clamp(min=0)], table, at)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, m: (x * m).sum() / m.sum(),
        lambda x, m: (x * m).sum(-1) / m.sum(-1).clamp(min=1),
        lambda x, m: x.sum(-1) / (m.sum(-1) + 1),
        lambda x, m: x * m.cumsum(-1).float(),
        lambda x, m: x * m.sum(-1, keepdim=True),
    ],
)
def test_sums_of_integers_are_floats(agrees, fn, dtype):
    """How large they are nobody knows: as floats they are as exact as sums of floats."""
    x = torch.randn(3, 5)
    agrees(fn, x, torch.tensor([[1, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]]).to(dtype))
    agrees(fn, x, torch.tensor([[2**24 + 1, 3, 2**20, 7, 1]] * 3).to(dtype), single=True)


def test_low_bits_are_those_of_large_integers(agrees):
    a = torch.tensor([[2**62 + 5, -(2**62) + 3, 2**31 + 1, -1, 2**24 + 1]])
    program = trace(lambda x, a, b: x * ((a + b - 3) % 8) + a % 16, torch.randn(1, 5), a, a)
    x = torch.randn(1, 5)
    found = torch_function(program)(x, a, a.flip(1))
    torch.testing.assert_close(found, x * ((a + a.flip(1) - 3) % 8) + a % 16)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
def test_words_are_shifted_by_numbers_of_a_tensor(agrees, dtype):
    """Packed weights of 4 bits: shifts of 64 bits make a word one, too."""
    torch.manual_seed(0)
    words = torch.randint(-(2**31), 2**31, (6, 2)).to(torch.int32)
    shifts = torch.tensor([0, 16, 4, 20, 8, 24, 12, 28], dtype=dtype)

    def fn(x, words, shifts):
        return x @ ((words[:, :, None] >> shifts) & 15).flatten(1).to(x.dtype)

    agrees(fn, torch.randn(3, 6), words, shifts)
    if dtype is torch.int64:  # what is left of a word is its sign
        beyond = torch.tensor([31, 32, 40, 63] * 2)
        agrees(fn, torch.randn(3, 6), words, beyond)


def test_a_list_as_an_index_beside_a_cast(agrees):
    """torch takes such a graph apart: the copy of the list is a clone there."""
    codes = torch.randint(0, 2**31, (4, 3), dtype=torch.int32)

    def fn(x, codes):
        nibbles = (codes[:, :, None] >> torch.arange(0, 32, 4)).to(torch.int8).flatten(1)
        order = torch.arange(24, dtype=torch.int32).view(-1, 8)[:, [0, 4, 1, 5, 2, 6, 3, 7]]
        return x @ (nibbles[:, order.view(-1)] & 15).to(x.dtype)

    agrees(fn, torch.randn(2, 4), codes)
