"""Launches as far as they can be tested without a GPU: inputs accepted, copied and refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from plans import rms_plan, two_kernel_plan

from mirage_py.errors import InputError, ScheduleError
from mirage_py.runtime.launch.input_check import ExpectedInput, check_detached
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.ugraph.ir.dtypes import F16, F32
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Tensor

CPU = torch.device("cpu")


def expect(*shape: int, strides: tuple[int, ...] | None = None) -> ExpectedInput:
    return ExpectedInput(Tensor("X", shape, F16, strides))


def test_a_tensor_that_fits_is_taken_as_it_is():
    x = torch.zeros(4, 8, dtype=torch.float16)
    assert expect(4, 8).accept(x, CPU) is x
    t = x.T
    assert expect(8, 4, strides=(1, 8)).accept(t, CPU) is t
    # The stride of an axis of one element says nothing.
    one = torch.zeros(1, 8, dtype=torch.float16).as_strided((1, 8), (99, 1))
    assert expect(1, 8).accept(one, CPU) is one


def test_another_layout_is_copied():
    x = torch.arange(32, dtype=torch.float16).reshape(8, 4).T
    got = expect(4, 8).accept(x, CPU)
    assert got.stride() == (8, 1)
    assert torch.equal(got, x)
    back = expect(4, 8, strides=(1, 4)).accept(got, CPU)
    assert back.stride() == (1, 4)
    assert torch.equal(back, x)


def test_a_misaligned_tensor_is_copied():
    x = torch.arange(65, dtype=torch.float16)[1:].reshape(8, 8)
    assert x.data_ptr() % 16 != 0
    got = expect(8, 8).accept(x, CPU)
    assert got.data_ptr() % 16 == 0
    assert torch.equal(got, x)


def test_an_expanded_tensor():
    x = torch.zeros(1, 8, dtype=torch.float16).expand(4, 8)
    spec = expect(4, 8, strides=(0, 1))
    assert spec.accept(x, CPU) is x
    with pytest.raises(InputError, match="which no copy can have"):
        spec.accept(x.contiguous(), CPU)


def test_a_misaligned_expanded_tensor_is_copied_with_its_layout():
    row = torch.arange(9, dtype=torch.float16)[1:].reshape(1, 8)
    x = row.expand(4, 8)
    assert x.data_ptr() % 16 != 0
    got = expect(4, 8, strides=(0, 1)).accept(x, CPU)
    assert got.data_ptr() % 16 == 0
    assert got.stride() == (0, 1)
    assert torch.equal(got, x)


def test_a_view_that_is_negated_as_it_is_read_is_copied():
    z = torch.arange(8.0).to(torch.complex64) * 1j
    x = z.conj().imag
    assert x.is_neg()
    spec = ExpectedInput(Tensor("X", (8,), F32, (2,)))
    got = spec.accept(x, CPU)
    assert not got.is_neg()
    assert got.stride() == (2,)
    assert got.tolist() == [-float(n) for n in range(8)]


def test_inputs_may_share_memory():
    """Kernels only read them: one tensor twice, views that overlap."""
    memory = torch.arange(64, dtype=torch.float16)
    a, b = memory[:32].view(4, 8), memory[16:48].view(4, 8)
    specs = (expect(4, 8), expect(4, 8), expect(4, 8))
    got = [spec.accept(x, CPU) for spec, x in zip(specs, (a, a, b), strict=True)]
    assert [g is x for g, x in zip(got, (a, a, b), strict=True)] == [True] * 3


def test_a_slice_of_a_larger_tensor():
    x = torch.arange(96, dtype=torch.float16).reshape(8, 12)[::2, :8]
    assert torch.equal(expect(4, 8).accept(x, CPU), x)
    assert expect(4, 8, strides=(24, 1)).accept(x, CPU) is x


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.zeros(0, 8, dtype=torch.float16), r"has shape \[0, 8\]"),
        (torch.zeros(8, 4, dtype=torch.float16), r"has shape \[8, 4\]"),
        (torch.zeros(4, 8), "has type torch.float32"),
        (torch.zeros(4, 8, dtype=torch.float16, device="meta"), "is on meta"),
        (torch.zeros(4, 8, dtype=torch.float16).to_sparse(), "sparse"),
    ],
)
def test_what_does_not_fit_is_refused(value: torch.Tensor, message: str):
    with pytest.raises(InputError, match=message) as raised:
        expect(4, 8).accept(value, CPU)
    assert "try: " in str(raised.value)


def test_a_gradient_is_never_lost_silently():
    x = torch.zeros(4, 8, dtype=torch.float16, requires_grad=True)
    with pytest.raises(InputError, match="'X' requires a gradient"):
        check_detached((x,), (expect(4, 8),))
    with torch.no_grad():
        check_detached((x,), (expect(4, 8),))
    check_detached((x.detach(),), (expect(4, 8),))


def test_a_runner_refuses_what_it_cannot_launch_on():
    runner = PlanRunner(two_kernel_plan())
    x = torch.zeros(33, 70, dtype=torch.float16)
    with pytest.raises(InputError, match="the inputs are on cpu"):
        runner(x)
    with pytest.raises(InputError, match="2 tensors for 1 inputs"):
        runner(x, x)
    with pytest.raises(InputError, match="'X' is a list"):
        runner([1.0])


def test_every_tensor_has_its_place():
    runner = PlanRunner(two_kernel_plan())
    assert [t.name for t in runner.memory] == ["X", "Y", "S"]
    assert [s.name for s in runner.steps] == ["row_sums", "divide"]


def test_plans_that_cannot_run_are_refused_at_once():
    plan = rms_plan()
    with pytest.raises(InputError, match="no runtime for back end 'metal'"):
        PlanRunner(Plan(plan.ugraph, plan.options, backend="metal"))
    (block,) = plan.ugraph.kernels
    opened = replace(block, grid=tuple(replace(a, tile=None) for a in block.grid))
    with pytest.raises(ScheduleError):
        PlanRunner(Plan(replace(plan.ugraph, kernels=(opened,)), plan.options))
