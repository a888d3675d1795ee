"""``mirage_py.check`` of Triton kernels written by hand, on a GPU."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import mirage_py

pytestmark = pytest.mark.gpu


@triton.jit
def _softmax(x, y, columns, SAFE: tl.constexpr, OTHER: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * columns
    value = tl.load(x + row + at, at < columns, other=OTHER).to(tl.float32)
    if SAFE:
        value -= tl.max(value, 0)
    exps = tl.exp(value)
    tl.store(y + row + at, exps / tl.sum(exps, 0), at < columns)


def launched(safe: bool = True, other: float = float("-inf")):
    def softmax(x):
        y = torch.empty_like(x)
        _softmax[(x.shape[0],)](x, y, x.shape[1], safe, other, triton.next_power_of_2(x.shape[1]))
        return y

    return softmax


def softmax(x):
    return torch.softmax(x, -1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_right_kernel(dtype):
    found = mirage_py.check(softmax, launched(), torch.randn(64, 1000, device="cuda", dtype=dtype))
    assert found.passed, found
    assert found.device.startswith("cuda")
    assert found.numbers.steady


@pytest.mark.parametrize(
    ("kernel", "on"), [(launched(safe=False), "logits"), (launched(other=0.0), "random")]
)
def test_a_wrong_kernel(kernel, on: str):
    found = mirage_py.check(softmax, kernel, torch.randn(64, 1000, device="cuda"))
    assert not found.passed
    assert on in found.numbers.faults, found


def test_results_that_are_not_written_are_seen():
    def half(x):
        y = torch.empty_like(x)
        y[:32] = softmax(x[:32])
        return y

    assert not mirage_py.check(softmax, half, torch.randn(64, 1000, device="cuda")).passed
