"""Tensors as users have them, through the decorator and the check of a kernel's inputs: views,
aliases, odd extents, and what goes to the function itself. docs/reference/torch.md says the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import pytest
import torch

from benchmarks.checks.differential_cases import one_kernel
from mirage_py.errors import InputError, MirageWarning
from mirage_py.frontend.decorator import CallOptions, SuperoptimizedFunction
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.runtime.launch.input_check import ExpectedInput
from mirage_py.runtime.store.saved import load, save_artifact
from mirage_py.ugraph.ir.program import Program

CPU = torch.device("cpu")


class Interpreted:
    """An optimizer that makes one kernel of a program; remembers the layouts it was asked for."""

    def __init__(self) -> None:
        self.programs: list[Program] = []

    def __call__(
        self, program: Program, inputs: Sequence[torch.Tensor], reference: Callable
    ) -> Callable:
        self.programs.append(program)
        plan = one_kernel(program, {})
        specs = [ExpectedInput(t) for t in program.inputs]

        def kernel(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
            laid_out = [s.accept(v, CPU) for s, v in zip(specs, values, strict=True)]
            assert all(v.data_ptr() % 16 == 0 for v in laid_out)
            arrays = {
                s.tensor.name: v.double().numpy() for s, v in zip(specs, laid_out, strict=True)
            }
            got = run_interpreted(plan, arrays)
            return tuple(
                torch.from_numpy(got[o.tensor.name]).to(getattr(torch, o.tensor.dtype.torch_name))
                for o in program.outputs
            )

        return kernel


def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * y + 1.0, (x - y).sum(-1)


def numbers(*shape: int) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape) / 8 - 3


def views() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    square, memory = numbers(6, 6), numbers(100)
    return {
        "plain": (numbers(4, 6), numbers(4, 6)),
        "one tensor twice": (square, square),
        "a tensor and its transpose": (square, square.T),
        "overlapping views": (memory[:24].view(4, 6), memory[10:34].view(4, 6)),
        "windows that overlap": (memory.as_strided((4, 6), (2, 1)), numbers(4, 6)),
        "transposed": (numbers(6, 4).T, numbers(4, 6)),
        "every second row and column": (numbers(8, 12)[::2, ::2], numbers(4, 6)),
        "an expanded row": (numbers(1, 6).expand(4, 6), numbers(4, 6)),
        "an expanded number": (numbers(1).expand(4, 6), numbers(4, 6)),
        "at an odd address": (memory[1:25].view(4, 6), numbers(4, 6)),
        "an expanded row at an odd address": (memory[1:7].expand(4, 6), numbers(4, 6)),
        "an extent of 1": (numbers(4, 1), numbers(4, 6)),
        "one element": (numbers(1, 1), numbers(1, 1)),
        "no axes": (numbers(1)[0], numbers(4, 6)),
        "negated as it is read": (
            torch.complex(numbers(4, 6), numbers(4, 6)).conj().imag,
            numbers(4, 6),
        ),
    }


@pytest.mark.parametrize("name", views())
def test_views_and_aliases_are_served(name):
    x, y = views()[name]
    made = Interpreted()
    served = SuperoptimizedFunction(function, CallOptions(strict=True), made)
    before = x.clone(), y.clone()
    for _ in range(2):
        got = served(x, y)
        for one, want in zip(got, function(x, y), strict=True):
            assert one.shape == want.shape
            assert one.stride() == want.stride()
            torch.testing.assert_close(one, want, rtol=1e-5, atol=1e-5)
    assert len(made.programs) == 1
    assert torch.equal(x, before[0])
    assert torch.equal(y, before[1])


def refused() -> dict[str, tuple[torch.Tensor, torch.Tensor, str]]:
    x = numbers(4, 6)
    return {
        "no elements": (torch.zeros(0, 6), torch.zeros(0, 6), "empty"),
        "a gradient": (x.clone().requires_grad_(), x, "requires grad"),
        "two devices": (x, torch.empty(4, 6, device="meta"), "several devices"),
        "float64": (x.double(), x.double(), "float64"),
        "complex numbers": (x.to(torch.complex64), x.to(torch.complex64), "complex"),
        "sparse": (x.to_sparse(), x, "not a dense tensor"),
    }


@pytest.mark.parametrize("name", [n for n in refused() if n != "two devices"])
def test_what_no_kernel_serves_goes_to_the_function(name):
    x, y, why = refused()[name]
    made = Interpreted()
    served = SuperoptimizedFunction(function, CallOptions(), made)
    if name == "sparse":
        served = SuperoptimizedFunction(lambda a, b: a.to_dense() + b, CallOptions(), made)
    with pytest.warns(MirageWarning, match=why):
        got = served(x, y)
    want = served.__wrapped__(x, y)
    pairs = zip(got, want, strict=True) if isinstance(got, tuple) else [(got, want)]
    assert all(torch.equal(a, b) for a, b in pairs)
    with warnings.catch_warnings():  # said once
        warnings.simplefilter("error")
        served(x, y)
    assert made.programs == []


def test_two_devices_are_named():
    x, y, why = refused()["two devices"]
    served = SuperoptimizedFunction(function, CallOptions(strict=True), Interpreted())
    with pytest.raises(Exception, match=why):
        served(x, y)


def test_each_type_and_layout_has_a_kernel_of_its_own():
    made = Interpreted()
    served = SuperoptimizedFunction(function, CallOptions(strict=True), made)
    x = numbers(4, 6)
    for value in (x, x.half(), x.bfloat16(), x.T.contiguous().T, x[:2]):
        for got, want in zip(served(value, value), function(value, value), strict=True):
            assert got.dtype == want.dtype
            torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    assert len(made.programs) == 5
    assert served.dispatch_table().count("->") == 5


def test_an_artifact_takes_what_it_was_made_for(tmp_path):
    """A loaded kernel checks as ``ExpectedInput`` does; here nothing can be launched."""
    made = Interpreted()
    served = SuperoptimizedFunction(function, CallOptions(strict=True), made)
    x, y = numbers(4, 6), numbers(4, 6)
    served(x, y)
    (program,) = made.programs
    save_artifact(tmp_path / "a", program=program, plan=one_kernel(program, {}), report={})
    kernel = load(tmp_path / "a")
    with pytest.raises(InputError, match="1 tensors for 2 inputs"):
        kernel(x)
    with pytest.raises(InputError, match="the inputs are on cpu"):
        kernel(x, y)
