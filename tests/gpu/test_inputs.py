"""Tensors as users have them, read by real kernels."""

from __future__ import annotations

import pytest
import torch

from benchmarks.checks.differential_cases import one_kernel
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.dtypes import F16, F32
from mirage_py.ugraph.ir.program import Program

pytestmark = pytest.mark.gpu


def rows(shape: tuple[int, int], strides: tuple[int, int] | None) -> Program:
    b = ProgramBuilder("rows")
    b.dim("m", shape[0])
    b.dim("n", shape[1])
    b.input("X", shape, F16, strides=strides)
    x = b.load("X", "mn")
    b.output("Y", b.apply("mul", x, b.const(2.0)), "mn", F16)
    b.output("S", b.sum(x, "m"), "n", F32)
    return b.build()


def check(x: torch.Tensor, strides: tuple[int, int] | None = None) -> None:
    y, s = PlanRunner(one_kernel(rows(tuple(x.shape), strides), {}))(x)
    assert torch.equal(y, x * 2)
    torch.testing.assert_close(s, x.double().sum(0).float(), rtol=1e-5, atol=1e-4)


def memory(elements: int) -> torch.Tensor:
    return torch.randn(elements, device="cuda").half()


def test_an_expanded_row_is_summed_as_often_as_it_stands_there():
    check(memory(33).expand(4, 33), (0, 1))
    check(memory(34)[1:].expand(17, 33), (0, 1))
    check(memory(1).expand(5, 33), (0, 0))


def test_slices_and_odd_addresses():
    check(memory(1000)[1:529].view(16, 33))
    check(memory(64 * 40).view(64, 40)[::2, 3:36])
    check(memory(64 * 40).view(40, 64).T[:17, :33], (1, 64))


def test_overlapping_windows():
    check(memory(100).as_strided((9, 33), (2, 1)), (2, 1))


def test_a_view_whose_end_is_beyond_32_bits():
    far = torch.empty(2**31 + 64, device="cuda", dtype=torch.float16)
    x = far.as_strided((3, 33), (2**30, 1))
    x.copy_(torch.randn(3, 33))
    check(x, (2**30, 1))
