"""A callable on tensors against float64, on random and adversarial inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from mirage_py.checking.sides import Function, Side
from mirage_py.errors import MirageError
from mirage_py.reasons import Code, Reason, reason
from mirage_py.runtime.base.layouts import laid_out, poison
from mirage_py.runtime.env.matmul_setting import matmuls_as_in
from mirage_py.runtime.numerical_check.input_store import on_device, to_arrays
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.numerical_check.check_strength import failed, joined, of_set, required
from mirage_py.verify.numerical_check.float_case import FloatEvidence, allowed_by_eager
from mirage_py.verify.numerical_check.input_sets import InputSet, drawn_sets, set_names
from mirage_py.verify.numerical_check.numerical_check import judge, reference

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Numbers:
    """What the input sets have shown: ``faults`` by set, ``share`` the smallest part of a set's
    outputs that was compared; ``steady`` says whether two calls on the same inputs gave the same
    bits.
    """

    evidence: FloatEvidence
    faults: Mapping[str, Reason]
    share: float
    steady: bool


def compare_numbers(side: Side, kernel: Function, *, seed: int, max_work: float) -> Numbers:
    """Run a kernel on every input set, twice, and judge both results beside eager PyTorch's."""
    parts: list[FloatEvidence] = []
    share, steady = 1.0, True
    called = side.adapted(kernel)
    with torch.no_grad(), matmuls_as_in(side.program):
        for drawn in drawn_sets(side.program, seed, set_names(side.program)):
            one = _OneSet(side, drawn, seed, max_work)
            found, same = one.judged(called)
            parts.append(of_set(drawn.name, found))
            share, steady = min(share, one.share), steady and same
            if found.reason is not None and found.reason.code is Code.NOT_RUN:
                break  # as on all others
    faults = {p.sets[0].name: p.reason for p in parts if p.reason is not None}
    return Numbers(required(joined(parts)), faults, share, steady)


class _OneSet:
    """One input set with its reference, and with what eager PyTorch makes of it."""

    def __init__(self, side: Side, drawn: InputSet, seed: int, max_work: float) -> None:
        self._side, self._program = side, side.program
        held = {name: x.double().cpu().numpy() for name, x in side.held.items()}
        arrays: dict[str, Any] = {**drawn.inputs, **held}
        if held:
            arrays = {n: a if n in held else a.dense() for n, a in arrays.items()}
        self._expected = reference(self._program, arrays, max_work=max_work, seed=seed)
        self.share = self._expected.share
        self._inputs = tuple(
            laid_out(t, _tensor(arrays[t.name], side.device)) for t in self._program.inputs
        )
        self._eager = None if side.function is None else self._called(side.function)

    def judged(self, kernel: Function) -> tuple[FloatEvidence, bool]:
        """What a kernel's results are found to be, and whether both calls gave the same."""
        before = [x.clone() for x in self._inputs]
        results: list[Tensors] = []
        for _ in range(2):
            _spoil(self._program, self._side.device)
            try:
                results.append(self._called(kernel))
            # Somebody else's code: whatever it raises is what is wrong with it.
            except Exception as error:  # noqa: BLE001
                return failed(reason(Code.NOT_RUN, _words(error))), True
            wrong = _wrong_kind(self._program, results[-1])
            if wrong is not None:
                return failed(wrong), True
        found = [self._evidence(result) for result in results]
        worst = next((f for f in found if not f.passed), found[0])
        for tensor, x, kept in zip(self._program.inputs, self._inputs, before, strict=True):
            if not torch.equal(x.nan_to_num(), kept.nan_to_num()):
                fault = reason(Code.WRITES_TO_INPUT, tensor.name)
                return replace(worst, passed=False, reason=fault), True
        return worst, all(map(torch.equal, *results))

    def _called(self, function: Function) -> Tensors:
        found = function(*self._inputs)
        if self._side.device.type == "cuda":
            torch.cuda.synchronize(self._side.device)
        return tuple(found) if isinstance(found, tuple | list) else (found,)

    def _evidence(self, outputs: Tensors) -> FloatEvidence:
        got = to_arrays(self._program, outputs)
        if self._eager is None:
            return judge(self._program, self._expected, got)
        eager = to_arrays(self._program, self._eager)
        found = judge(self._program, self._expected, got, eager=eager)
        return allowed_by_eager(found, judge(self._program, self._expected, eager))


def _tensor(values: Any, device: torch.device) -> torch.Tensor:
    if isinstance(values, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(values)).to(device).reshape(values.shape)
    return on_device(values, device)


def _words(error: Exception) -> str:
    if isinstance(error, MirageError):
        return error.what
    first = (str(error).strip().splitlines() or [""])[0]
    return f"it raises {type(error).__name__}: {first}"


def _spoil(program: Program, device: torch.device) -> None:
    """Fill memory that a kernel is likely to get for its results, which may hold the right ones of
    an earlier call.
    """
    for tensor in (o.tensor for o in program.outputs):
        dtype = getattr(torch, tensor.dtype.torch_name)
        torch.full(tensor.shape, poison(dtype), dtype=dtype, device=device)


def _wrong_kind(program: Program, outputs: Sequence[Any]) -> Reason | None:
    """What is wrong with results before their values are looked at."""
    wanted = [o.tensor for o in program.outputs]
    if len(outputs) != len(wanted):
        return reason(Code.NOT_RUN, f"it returns {len(outputs)} results, and the function "
                      f"{len(wanted)}")  # fmt: skip
    for tensor, value in zip(wanted, outputs, strict=True):
        if not isinstance(value, torch.Tensor):
            return reason(Code.NOT_RUN, f"{tensor.name} is a {type(value).__name__}, no tensor")
        if tuple(value.shape) != tensor.shape:
            return reason(Code.WRONG_SHAPE, tensor.name, [*value.shape], [*tensor.shape])
        kind = getattr(torch, tensor.dtype.torch_name)
        if value.dtype != kind:
            return reason(Code.NOT_RUN, f"{tensor.name} is of {value.dtype}, not {kind}")
    return None
