"""What a function, its arguments and its results are refused for, and what is told to try."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mirage_py
from mirage_py.errors import InputError, UnsupportedError
from mirage_py.ugraph.checks.whole_numbers import require_whole_numbers

HALF = torch.randn(4, 8).half()
IMAGE = torch.randn(1, 2, 4, 8)
GRID = torch.zeros(1, 3, 3, 2)
EIGHT, ODD = HALF.to(torch.float8_e4m3fn), HALF.to(torch.float8_e4m3fnuz)


@dataclass
class Scores:
    """What some models return."""

    values: torch.Tensor


def doubled(x):
    return x * 2


def matmul(x, w):
    return x @ w


class Counting(nn.Module):
    """Counts its calls in a buffer, and fails in all."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return x @ torch.ones(3, 3)


@pytest.mark.parametrize(
    ("function", "inputs", "said"),
    [
        (doubled, [ODD], ["torch.float8_e4m3fnuz", "kernels read float8_e4m3fn and"]),
        (doubled, [ODD], ["try: convert it outside the function, as in x.to(torch.float16)"]),
        (doubled, [EIGHT], ["arithmetic of torch.float8_e4m3fn", "try: convert to float32 first"]),
        (doubled, [HALF.double()], ["of torch.float64", "try: convert it to float32"]),
        (doubled, [HALF.to(torch.uint16)], ["why: of integers kernels read int8", "try: convert"]),
        (lambda x: x.to(torch.float8_e5m2), [HALF], ["the type torch.float8_e5m2 is not", "try:"]),
        (lambda x: Scores(x * 2), [HALF], ["a result is of type Scores", "return the tensors"]),
        (doubled, [3], ["given no tensor", "x is a int", "pass tensors"]),
        (doubled, [np.ones(3)], ["given no tensor", "x is a ndarray", "torch.from_numpy"]),
        (lambda: torch.ones(3), [], ["given no tensor", "it takes no arguments"]),
        (lambda x: x << 1, [HALF.int()], ["__lshift__", "which have no bits"]),
        (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), [IMAGE], ["between el"]),
        (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), [IMAGE], ["upsample_bicub"]),
        (lambda x: F.interpolate(x, size=8, mode="nearest-exact"), [IMAGE], ["nearest_exact2d"]),
        (lambda x: F.interpolate(x, size=(6, 8)), [IMAGE], ["resamples 4 elements to 6", "x[::2]"]),
        (lambda x: F.grid_sample(x, GRID, align_corners=False), [IMAGE], ["grid_sampler_2d"]),
        (lambda x: x.to_sparse(), [HALF], ["_to_sparse", "dense tensors"]),
        (lambda x: torch.from_numpy(x.numpy() * 2), [HALF], ["cannot be traced", "leave this"]),
    ],
)  # fmt: skip
def test_what_cannot_be_a_program(function, inputs, said: list[str]):
    with pytest.raises(UnsupportedError) as caught:
        mirage_py.trace(function, *inputs)
    text = str(caught.value)
    assert all(part in text for part in said), text
    assert "\n  why: " in text or "\n  try: " in text


@pytest.mark.parametrize(
    ("function", "inputs", "said"),
    [
        (matmul, [HALF, HALF], ["(4x8 and 4x8)", "x is float16[4, 8], w is float16[4, 8]"]),
        (matmul, [HALF, HALF.T.float()], ["same dtype", "w is float32[8, 4]"]),
        (lambda x: x.nonsense(), [HALF], ["no attribute 'nonsense'", "raises AttributeError"]),
        (lambda x: x.view(3, 5), [HALF], ["shape '[3, 5]' is invalid for input of size 32"]),
        (lambda x, y: torch.cat([x, y]), [HALF, HALF[:, 1:]], ["Sizes of tensors must match"]),
        (Counting(), [HALF], ["(4x8 and 3x3)", "return x @ torch.ones(3, 3)"]),
    ],
)  # fmt: skip
def test_errors_of_the_function_itself(function, inputs, said: list[str]):
    """A call of it says the same, so it is told at once, as an error of what was given."""
    with pytest.raises(InputError, match="the function fails on these inputs: ") as caught:
        mirage_py.trace(function, *inputs)
    text = str(caught.value)
    assert all(part in text for part in said), text
    assert caught.value.exit_code == 2
    assert caught.value.where.startswith(f"{__file__}:")


def test_who_asks_changes_nothing():
    module, x = Counting(), torch.ones(2, 4)
    with pytest.raises(InputError):
        mirage_py.trace(module, x)
    assert module.calls == 0

    def writes(x):
        x.add_(1)
        return x @ x

    with pytest.raises(InputError):
        mirage_py.trace(writes, x)
    assert torch.equal(x, torch.ones(2, 4))


def test_a_function_that_works_is_not_to_blame():
    """What torch.export alone refuses stays unsupported."""
    with pytest.raises(UnsupportedError, match=r"\.numpy\(\) is not supported"):
        mirage_py.trace(lambda x: x + x.numpy().shape[0], HALF)


def test_integer_results_that_may_overflow():
    program = mirage_py.parse(
        "M = 2, N = 3\nX[M, N], Y[M, N] : i32\nZ[M, N] : i32\nZ[m, n] = X[m, n] * Y[m, n]"
    )
    with pytest.raises(UnsupportedError) as caught:
        require_whole_numbers(program)
    assert "does not hold all values" in str(caught.value)
    assert "try: compute and return it as float32, and cast it outside" in str(caught.value)


def test_long_lines_are_cut():
    with pytest.raises(UnsupportedError, match=r"cummax.* \.\.\.`") as caught:
        mirage_py.trace(lambda x: (x.flatten().cummax(-1).values, "a string that makes this line long, as those are that hold a whole table"), HALF)  # noqa: E501  # fmt: skip
    assert "table" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: mirage_py.optimize(doubled), ["is <function doubled", "mirage_py.trace("]),
        (lambda: mirage_py.parse("a.math"), ["names a file", "read_text()"]),
        (lambda: mirage_py.superoptimize("f.py:f"), ["was given a str", "it takes a function"]),
    ],
)  # fmt: skip
def test_calls_of_the_interface(call, said: list[str]):
    with pytest.raises(InputError) as caught:
        call()
    assert all(part in str(caught.value) for part in said), str(caught.value)
