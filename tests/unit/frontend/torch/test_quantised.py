"""Quantised weights and activations as torchao, compressed-tensors and users spell them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch.trace import trace
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.interpret.program import evaluate_program

ROWS, COLUMNS, OUTPUTS, GROUP = 3, 64, 5, 16
GROUPS = (OUTPUTS, COLUMNS // GROUP)


def nibbles(x, w, s, z):
    q = torch.stack((w & 0xF, w >> 4), dim=-1).view(*GROUPS, GROUP).to(x.dtype)
    return F.linear(x, ((q - z[..., None]) * s[..., None]).view(OUTPUTS, COLUMNS))


def symmetric_nibbles(x, w, s, z):
    low, high = (w & 0xF).to(torch.int8) - 8, (w >> 4).to(torch.int8) - 8
    full = torch.stack((low, high), dim=-1).flatten(-2).to(x.dtype)
    return F.linear(x, full * s[:, :1] + z[:, :1])


def drawn() -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(5)
    x = torch.randn(ROWS, COLUMNS, generator=draw)
    w = torch.randint(0, 256, (OUTPUTS, COLUMNS // 2), generator=draw, dtype=torch.uint8)
    return [x, w, torch.rand(GROUPS, generator=draw), torch.rand(GROUPS, generator=draw) * 8]


@pytest.mark.parametrize("fn", [nibbles, symmetric_nibbles], ids=lambda f: f.__name__)
def test_packed_codes(agrees, fn):
    agrees(fn, *drawn())


E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def by_table(x, w, s):
    table = torch.tensor(E2M1, dtype=x.dtype)
    q = table[torch.stack((w & 0xF, w >> 4), dim=-1).flatten(-2).int()].view(*GROUPS, GROUP)
    return F.linear(x, torch.ldexp(q, s.int()[..., None] - 127).view(OUTPUTS, COLUMNS))


def other_table(x, w, s):
    table = torch.tensor([0.5 * n * n - 9.0 for n in range(16)], dtype=x.dtype)
    low, high = table[(w & 15).long()], table[(w >> 4).long()]
    return F.linear(x, torch.stack((low, high), dim=-1).flatten(-2)) * s[:, 0]


@pytest.mark.parametrize("fn", [by_table, other_table], ids=lambda f: f.__name__)
def test_tables_of_codes(agrees, fn):
    x, w, _, _ = drawn()
    s = torch.randint(120, 130, GROUPS, dtype=torch.uint8)
    agrees(fn, x, w, s)
    is_e2m1 = any(n.op == "neg" for n in trace(fn, x, w, s).nodes)
    assert is_e2m1 == (fn is by_table)


def test_a_table_may_be_an_input(agrees):
    x, w, _, _ = drawn()
    table = torch.randn(16)

    def fn(x, w, table):
        q = table.sin()[torch.stack((w >> 4, w & 15), dim=-1).flatten(-2).long()]
        return F.linear(x, q * table[w[:1, :1].long() & 15])

    agrees(fn, x, w, table)
    agrees(fn, x, w, torch.randn(17))  # by positions


def test_words_of_codes(agrees):
    x, w, s, z = drawn()
    packed = w.view(torch.int32)

    def fn(x, w, s, z):
        shifts = torch.arange(0, 32, 4, dtype=torch.int32)
        q = ((w[:, :, None] >> shifts) & 0xF).view(OUTPUTS, COLUMNS).to(torch.int8) - 8
        return F.linear(x, (q.view(*GROUPS, GROUP) * s[..., None]).view(OUTPUTS, COLUMNS)) + z.sum()

    agrees(fn, x, packed, s, z)


def test_float8_weights(agrees):
    x, _, s, _ = drawn()
    w = torch.randn(OUTPUTS, COLUMNS).to(torch.float8_e4m3fn)
    agrees(lambda x, w, s: F.linear(x, w.to(torch.float32) * s[:, :1]), x, w, s)
    program = trace(lambda x, w: F.linear(x, w.to(x.dtype)), x.bfloat16(), w)
    assert not any(n.op == "cast" for n in program.nodes)


def test_float8_activations(agrees):
    x, _, s, _ = drawn()
    w = torch.randn(OUTPUTS, COLUMNS).to(torch.float8_e4m3fn)

    def fn(x, w, s):
        scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448.0
        q = (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
        return (q.float() @ w.float().t()) * scale * s[:, 0]

    agrees(fn, x, w, s)
    assert [n.op for n in trace(fn, x, w, s).nodes].count("e4m3") == 1


def scaled(x, w, a, s, bias):
    return torch._scaled_mm(x, w.t(), a, s, bias=bias, out_dtype=torch.bfloat16)


def by_hand(x, w, a, s, bias):
    return ((x.float() @ w.float().t()) * a * s + bias).to(torch.bfloat16)


@pytest.mark.parametrize("shapes", [((), ()), ((32, 1), (1, 48))], ids=["tensors", "channels"])
def test_scaled_matmuls_of_float8(shapes):
    """torch has them of float8 alone, so that float64 is no reference."""
    x, w = (torch.randn(n, 64).to(torch.float8_e4m3fn) for n in (32, 48))
    a, s = map(torch.rand, shapes)
    bias = torch.randn(48).bfloat16()
    assert trace(scaled, x, w, a, s, bias).nodes == trace(by_hand, x, w, a, s, bias).nodes
    torch.testing.assert_close(scaled(x, w, a, s, bias), by_hand(x, w, a, s, bias))


def test_scales_of_blocks_are_factors_in_the_loop():
    """1 x 128 activations and 128 x 128 weights; a CPU does not run them."""
    x, w = (torch.randn(n, 256).to(torch.float8_e4m3fn) for n in (8, 384))
    a, s = torch.rand(2, 8).t(), torch.rand(3, 2).t()
    program = trace(lambda *args: scaled(*args, None), x, w, a, s)
    arrays = {t.name: v.double().numpy() for t, v in zip(program.inputs, (x, w, a, s), strict=True)}
    (found,) = evaluate_program(program, arrays, FloatMeaning()).values()
    left = x.double() * a.repeat_interleave(128, 1)
    right = w.t().double() * s.repeat_interleave(128, 0).repeat_interleave(128, 1)
    np.testing.assert_allclose(found, (left @ right).numpy(), rtol=2e-2, atol=2e-2)
    (matmul,) = (n for n in program.nodes if n.op == "matmul")
    assert all(program.nodes[n].op in ("load", "mul") for n in matmul.args)


def test_a_scaled_matmul_with_a_result_of_float8_is_refused():
    x = torch.randn(32, 32).to(torch.float8_e4m3fn)
    with pytest.raises(UnsupportedError, match="a result of float8 is not supported"):
        trace(lambda x, a: torch._scaled_mm(x, x.t(), a, a), x, torch.rand(()))


def test_what_float8_does_not_hold_is_refused():
    # torch has NaN there, kernels the largest number.
    x = torch.randn(4, 8)
    over = lambda x: x.clamp(-448, 448).clamp(min=500)  # noqa: E731
    for fn in (lambda x: x, lambda x: x.clamp(-500, 448), lambda x: x.clamp(max=448), over):
        with pytest.raises(UnsupportedError, match="float8_e4m3fn is not supported here"):
            trace(lambda x, fn=fn: fn(x).to(torch.float8_e4m3fn).float() * 2, x)


@pytest.mark.parametrize("kind", [torch.int8, torch.int16, torch.uint8])
def test_left_shifts_of_narrow_integers_lose_their_upper_bits(agrees, kind):
    limits = torch.iinfo(kind)
    w = torch.randint(limits.min, limits.max + 1, (40,), dtype=kind)
    w[:2] = torch.tensor([limits.min, limits.max], dtype=kind)
    for shift in (0, 1, 4, limits.bits - 1):
        agrees(lambda w, shift=shift: (w << shift).float(), w, single=True)
        agrees(lambda w, shift=shift: ((w << shift) >> shift).float(), w, single=True)


def test_a_cast_to_narrow_integers_takes_the_low_bits(agrees):
    words = torch.randint(-(2**31), 2**31, (6, 5), dtype=torch.int64).to(torch.int32)

    def taken(w):
        shifts, order = torch.tensor([0, 4, 8, 12]), torch.tensor([3, 0, 1, 2])
        # Chosen before they are masked: float32 does not hold words.
        return ((w[:, :, None] >> shifts[order]).to(torch.int8).view(6, -1) & 15).float()

    agrees(taken, words, single=True)
    for fn in (
        lambda w: w.to(torch.int8).float(),
        lambda w: (w.to(torch.int8) & -16).float(),
        lambda w: (w.to(torch.int8) >> 4).float(),
        lambda w: ((c := w.to(torch.int8)) & 15).float() + c,
    ):
        agrees(fn, words, single=True)


def _scaled_by(scale, x, limit: float = 448.0):
    found = scale(x, limit)
    return (x / found).to(torch.float8_e4m3fn), found


SCALES = {
    "rows": lambda x, limit: x.abs().amax(-1, keepdim=True) / limit,
    "rows, a product": lambda x, limit: x.abs().amax(-1, keepdim=True) * (1 / limit),
    "the tensor": lambda x, limit: (x.abs().max() / limit).clamp(min=1e-12),
    "rows, clamped": lambda x, limit: x.abs().amax(-1, keepdim=True).clamp(min=1e-4) / limit,
}


@pytest.mark.parametrize("name", SCALES)
def test_values_over_their_largest_are_rounded_without_a_clamp(name):
    x = torch.randn(6, 32) * torch.logspace(-6, 6, 6)[:, None]
    program = trace(lambda x: _scaled_by(SCALES[name], x.tanh() * 3), x)
    codes, scales = torch_function(program)(x)
    wanted, by = _scaled_by(SCALES[name], x.tanh() * 3)
    torch.testing.assert_close(codes.float(), wanted.float(), rtol=0, atol=0)
    torch.testing.assert_close(scales, by)
    # Blocks, the reciprocal first: a kernel of DeepGEMM for tokens.
    blocks = lambda x: (x * (448.0 / SCALES[name](x, 1.0))).to(torch.float8_e4m3fn)  # noqa: E731
    found = torch_function(trace(blocks, x.view(6, 4, 8)))(x.view(6, 4, 8))
    assert found.float().equal(blocks(x.view(6, 4, 8)).float())


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: _scaled_by(SCALES["rows"], x, 500.0)[0],
        lambda x: (x * 2 / SCALES["rows"](x, 448.0)).to(torch.float8_e4m3fn),
        lambda x: (x / SCALES["rows"](x + 1, 448.0)).to(torch.float8_e4m3fn),
        lambda x: (x / (x.amax(-1, keepdim=True) / 448.0)).to(torch.float8_e4m3fn),
        lambda x: (x / SCALES["rows"](x, 448.0).half()).to(torch.float8_e4m3fn),
        lambda x: (x / SCALES["rows"](x, 448.0).clamp(max=1.0)).to(torch.float8_e4m3fn),
    ],
)
def test_values_that_may_be_out_of_range_are_not(fn):
    with pytest.raises(UnsupportedError, match="float8_e4m3fn is not supported"):
        trace(fn, torch.randn(6, 32))
