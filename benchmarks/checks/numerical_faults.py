"""The numerical check on planted faults: which are refused, and which relative error is seen.

    python -m benchmarks.checks.numerical_faults [--type bf16] [--only norm] [--measured]

Programs of many kinds are computed as kernels compute them, in NumPy, and judged as the tuner
judges a kernel, on every set of inputs and beside eager PyTorch on the CPU. By class:

right      of right kernels (four orders of summation), how many are refused
faults     of wrong kernels, how many pass that are farther off than a right one by a factor of 4,
           in the norm, on some set or on data far from zero, to either side; each is named
all, row,  the smallest relative error of all elements, of one row, and of one element (of its row's
element    mean) that is refused on some set: the median of the programs

``--measured`` judges as where the reference is computed on the device, by eager PyTorch's errors.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.checks.emulated_kernels import Form, run
from benchmarks.checks.numerical_fault_programs import PROGRAMS
from benchmarks.checks.planted_faults import faults
from mirage_py.frontend.spec import parse
from mirage_py.runtime.base.layouts import laid_out
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.runtime.numerical_check.device_reference import device_reference
from mirage_py.runtime.numerical_check.input_store import on_device
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.dtypes import BF16, F16
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.verify.evaluate.element_types import round_to
from mirage_py.verify.numerical_check.float_case import EagerError, OutputCase
from mirage_py.verify.numerical_check.input_sets import InputSet, input_sets
from mirage_py.verify.numerical_check.numerical_check import cases, reference
from mirage_py.verify.numerical_check.periodic_input import PeriodicInput

_FORMS = (Form(), Form(tile=16, backward=True), Form(tile=32, parts=8), Form(tile=1 << 30))
_MUCH = 4.0
_CPU = torch.device("cpu")

Outputs = Mapping[str, FloatArray]


@dataclass(frozen=True, slots=True)
class _Judged:
    """One set of inputs: what each output has to be, eager's errors, and a right kernel's."""

    inputs: InputSet
    cases: tuple[OutputCase, ...]
    eager: list[EagerError]
    right: Outputs

    def passes(self, outputs: Outputs) -> bool:
        pairs = zip(self.cases, self.eager, strict=True)
        return all(c.evidence(outputs[c.name], e).passed for c, e in pairs)

    def times_right(self, outputs: Outputs) -> float:
        """How much farther outputs are off than the right kernel's, or than rounding once."""
        return max(self._times_right(c, outputs[c.name]) for c in self.cases)

    def _times_right(self, case: OutputCase, output: FloatArray) -> float:
        held = case.compared & np.isfinite(output)
        expected, right, wrong = (
            np.where(held, x, 0.0) for x in (case.expected, self.right[case.name], output)
        )
        own = case.tensor.dtype.unit_roundoff * np.linalg.norm(expected)
        least = max(float(np.linalg.norm(right - expected)), float(own), 1e-300)
        return float(np.linalg.norm(wrong - expected)) / least


class Subject:
    """A program with everything that kernels of it are judged by."""

    def __init__(self, text: str, *, is_measured: bool = False) -> None:
        self.program = parse(text)
        function = torch_function(self.program)
        self._sets = [self._judged(s, function, is_measured) for s in input_sets(self.program, 0)]

        self._far_data = self._judged(_far_data(self.program), function, is_measured)

    def _judged(
        self, inputs: InputSet, function: Callable[..., object], is_measured: bool
    ) -> _Judged:
        tensors = self.program.inputs
        given = [laid_out(t, on_device(inputs.inputs[t.name], _CPU, t.dtype)) for t in tensors]
        known = (
            device_reference(self.program, given, 0)
            if is_measured
            else reference(self.program, inputs.arrays)
        )
        found = cases(self.program, known)
        with torch.no_grad():
            outputs = function(*given)
        pairs = zip(found, outputs if isinstance(outputs, tuple) else (outputs,), strict=True)
        eager = [case.of_eager(x.double().numpy()) for case, x in pairs]
        return _Judged(inputs, found, eager, run(self.program, inputs.arrays))

    def passes(self, kernel: Callable[[_Judged], Outputs]) -> bool:
        """Whether no set refuses what a kernel gives."""
        return all(one.passes(kernel(one)) for one in self._sets)

    def refused_forms(self) -> Iterator[str]:
        """Right kernels that do not pass."""
        for form in _FORMS:
            if not self.passes(lambda s, form=form: run(self.program, s.inputs.arrays, form)):
                yield f"right kernel, {form}"

    def accepted_faults(self) -> Iterator[tuple[str, bool]]:
        """Every fault, and whether it passes though it is far off on some set."""
        for what, wrong in self._wrong_kernels():
            seen = (*self._sets, self._far_data)
            yield what, self.passes(wrong) and any(s.times_right(wrong(s)) > _MUCH for s in seen)

    def _wrong_kernels(self) -> Iterator[tuple[str, Callable[[_Judged], Outputs]]]:
        for what, program in faults(self.program):
            yield what, lambda s, program=program: run(program, s.inputs.arrays)
        for what, spoil in _SPOILT.items():
            yield what, lambda s, spoil=spoil: self._spoilt(s, spoil)

    def least(self, kind: str) -> float:
        """The smallest error of this kind that is refused, to a fifth; infinite where none is."""
        low, high = -24.0, 1.0
        if self.passes(lambda s: self._off(s, kind, 2.0**high)):
            return float("inf")
        while high - low > 0.25:
            middle = (low + high) / 2
            passed = self.passes(lambda s, r=2.0**middle: self._off(s, kind, r))
            low, high = (middle, high) if passed else (low, middle)
        return 2.0**high

    def _off(self, one: _Judged, kind: str, by: float) -> Outputs:
        """The first output off by a share; of exact results, rounded once."""
        case = one.cases[0]
        wrong = np.array(case.expected, ndmin=1)
        rows = wrong.reshape(-1, wrong.shape[-1])
        row = rows[len(rows) // 3]
        if kind == "element":
            finite = np.where(np.isfinite(row), row, 0.0)
            row[len(row) // 3] += by * np.sqrt((finite**2).mean())
        else:
            part = wrong if kind == "all" else row
            part *= 1.0 + by
        shaped = wrong.reshape(case.shape)
        return {**one.right, case.name: round_to(shaped, case.tensor.dtype)}

    def _spoilt(self, one: _Judged, spoil: Callable[[FloatArray, Tensor], None]) -> Outputs:
        case = one.cases[0]
        wrong = np.array(one.right[case.name], ndmin=1)
        spoil(wrong.reshape(-1, wrong.shape[-1]), case.tensor)
        return {**one.right, case.name: wrong.reshape(case.shape)}


def _far_data(program: Program) -> InputSet:
    """Inputs that are positive and negative by turns, and of no set of the check."""
    found = {}
    for number, tensor in enumerate(program.inputs):
        draw = np.random.default_rng(number)
        values = draw.integers(0, 8, size=tensor.shape).astype(np.float64)
        if tensor.dtype.is_float:
            values = (4.0 + np.abs(draw.normal(size=tensor.shape))) * (-1.0) ** number
        found[tensor.name] = PeriodicInput.of(tensor.shape, round_to(values, tensor.dtype))
    return InputSet("far data", found)


def _other_row(rows: FloatArray, _: Tensor) -> None:
    rows[-1] = rows[0]


def _lost_tile(rows: FloatArray, _: Tensor) -> None:
    rows[-16:, -16:] = 0.0


def _lost_element(rows: FloatArray, _: Tensor) -> None:
    rows[-1, -1] = 0.0


def _no_number(rows: FloatArray, _: Tensor) -> None:
    rows[len(rows) // 2, 0] = np.nan


def _cut_off(rows: FloatArray, tensor: Tensor) -> None:
    """One unit of the last place closer to zero, every second time: not rounded to nearest."""
    if tensor.dtype in (BF16, F16):
        rows[:, ::2] = round_to(rows[:, ::2] * (1 - 2 * tensor.dtype.unit_roundoff), tensor.dtype)


_SPOILT = {
    "the first row in place of the last": _other_row,
    "a last tile of zeros": _lost_tile,
    "a last element of 0": _lost_element,
    "an element that is no number": _no_number,
    "results that are cut off": _cut_off,
}


@dataclass(slots=True)
class Row:
    """The figures of a class."""

    right: int = 0
    refused: int = 0
    planted: int = 0
    accepted: int = 0

    def __str__(self) -> str:
        right = f"right refused {self.refused}/{self.right}"
        return f"{right}, faults passed {self.accepted}/{self.planted}"


def main() -> int:
    """Print the table; 1 where a right kernel is refused."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--type", default="bf16", choices=("bf16", "f16", "f32"))
    parser.add_argument("--only", default="", help="a regular expression of class/name")
    parser.add_argument("--measured", action="store_true")
    given = parser.parse_args()
    refused = 0
    for kind, programs in PROGRAMS.items():
        row, least = Row(), {"all": [], "row": [], "element": []}
        for name, text in programs.items():
            if not re.search(given.only, f"{kind}/{name}"):
                continue
            subject = Subject(text.format(t=given.type), is_measured=given.measured)
            row.right += len(_FORMS)
            for what in subject.refused_forms():
                row.refused += 1
                print(f"  REFUSED {name}: {what}", flush=True)
            for what, is_accepted in subject.accepted_faults():
                row.planted += 1
                row.accepted += is_accepted
                if is_accepted:
                    print(f"  PASSED {name}: {what}", flush=True)
            for one, found in least.items():
                found.append(subject.least(one))
        if row.right:
            smallest = ", ".join(f"{k} {statistics.median(v):.1e}" for k, v in least.items())
            print(f"{kind}: {row}; smallest seen: {smallest}", flush=True)
        refused += row.refused
    return int(refused > 0)


if __name__ == "__main__":
    sys.exit(main())
