"""Integers of 32 and 64 bits compared, stored and taken apart, in both languages: values that
float32 does not hold.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from cuda_plans import for_cuda
from naive_plans import one_block_plan

from mirage_py.frontend.torch.trace import trace
from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted

LONG = [5, 2**24, 2**24 + 1, 2**31, 2**31 + 1, 2**53 - 1, 2**53, 2**53 + 2]
SHORT = [5, 2**24, 2**24 + 1, 2**30, 2**30 + 1, 2**31 - 2, 2**31 - 1, -(2**31)]


def _run(fn: Any, *given: torch.Tensor, emulated: bool) -> list[np.ndarray]:
    program = trace(fn, *given)
    named = dict(zip("ab", given, strict=False))
    arrays = {t.name: named[t.name].double().numpy() for t in program.inputs}
    plan = one_block_plan(program)
    found = run_emulated(for_cuda(plan), arrays) if emulated else run_interpreted(plan, arrays)
    return [found[o.tensor.name] for o in program.outputs]


BACK_ENDS = [
    False,
    pytest.param(True, marks=pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")),
]
back_ends = pytest.mark.parametrize("emulated", BACK_ENDS, ids=("triton", "cuda"))


def _results(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    compared = a[:, :, None] == a[:, None], a.T < b.T, (a != b[:1]).sum(-1), a[:, 1:].clone()
    # Products of floats: those of integers would wrap around.
    x, y = a.float(), b.float()
    return *compared, x * y - x.sum(-1, keepdim=True), x @ y.T


@back_ends
@pytest.mark.parametrize("kinds", [(LONG, LONG), (SHORT, SHORT), (SHORT, LONG)])
def test_integers_of_any_size(kinds, emulated):
    values = [torch.tensor(k, dtype=torch.int64 if k is LONG else torch.int32) for k in kinds]
    a, b = (torch.stack([v, v.roll(1), v.flip(0)]) for v in values)
    found = _run(_results, a, b, emulated=emulated)
    for got, want in zip(found, _results(a, b), strict=True):
        if want.is_floating_point():
            most = float(want.abs().max())
            np.testing.assert_allclose(got, want.double().numpy(), rtol=0, atol=1e-6 * most)
        else:
            np.testing.assert_array_equal(got, want.double().numpy())


@back_ends
def test_the_bits_of_words_are_all_there(emulated):
    words = torch.randint(-(2**31), 2**31, (3, 16), generator=torch.Generator().manual_seed(2))

    def of_words(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return ((a >> 4) & 15) - 8, a & 255, a >> 3

    def low(a: torch.Tensor) -> tuple[torch.Tensor]:
        return (a & 0xFFFFF,)

    for bits, a in ((of_words, words.int()), (low, (words << 20) + 12345)):
        for got, want in zip(_run(bits, a, emulated=emulated), bits(a), strict=True):
            np.testing.assert_array_equal(got, want.double().numpy())


@back_ends
def test_whole_quotients_are_whole(emulated):
    """41 times the float32 next to 1 / 41 is below 1."""
    a, b = torch.arange(1, 25).reshape(3, 8) * 451, torch.tensor([[41], [11], [451]])

    def quotients(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, y = a.int(), b.int()
        return torch.div(x, y, rounding_mode="trunc"), x // y, x % y

    found = _run(quotients, a.to(torch.int16), b.to(torch.int16), emulated=emulated)
    for got, want in zip(found, quotients(a, b), strict=True):
        np.testing.assert_array_equal(got, want.double().numpy())
