"""Inputs and references of a numerical check on disk, where a new worker finds them; copies for
timing in rotation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage_py.runtime.base.layouts import write_once
from mirage_py.runtime.timing.timing import rotation_sets
from mirage_py.ugraph.ir.dtypes import F16, F64
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.verify.numerical_check.float_case import FloatEvidence, OutputCase
from mirage_py.verify.numerical_check.numerical_check import Reference, cases, worst_of

if TYPE_CHECKING:
    import torch

InputSet = tuple["torch.Tensor", ...]

FloatArray = NDArray[np.float64]
# The set that is timed on.
RANDOM = "random"


@dataclass(frozen=True)
class InputStore:
    """Files under ``folder``: for each input set its inputs, the float64 outputs with the size of
    their rounding errors, and what eager PyTorch gives.
    """

    folder: Path
    program: Program

    def write_inputs(self, name: str, arrays: Mapping[str, FloatArray]) -> None:
        """Keep inputs, which are rounded to their types already, in a type that holds them."""
        for tensor in self.program.inputs:
            kept = {F16: np.float16, F64: np.float64}.get(tensor.dtype, np.float32)
            self._save(name, "input", tensor, arrays[tensor.name].astype(kept))

    def write_reference(self, name: str, reference: Reference) -> None:
        """Keep the right outputs."""
        for output in self.program.outputs:
            tensor = output.tensor
            self._save(name, "output", tensor, reference.outputs[tensor.name])
            self._save(name, "error", tensor, reference.errors[tensor.name].astype(np.float32))

    def write_eager(self, name: str, outputs: Mapping[str, FloatArray]) -> None:
        """Keep what eager PyTorch computes."""
        for output in self.program.outputs:
            array = outputs[output.tensor.name].astype(np.float32)
            self._save(name, "eager", output.tensor, array)

    def inputs(self, name: str, device: torch.device) -> tuple[torch.Tensor, ...]:
        """The input tensors of a set, in the layout that the program says."""
        import torch

        return tuple(
            laid_out(tensor, torch.from_numpy(self._load(name, "input", tensor)).to(device))
            for tensor in self.program.inputs
        )

    def judge(self, name: str, got: Mapping[str, FloatArray]) -> FloatEvidence:
        """Compare outputs with the reference of a set, and with eager's where it ran."""
        known, eager = self.expected(name)
        found = [c.judge(got[c.name], eager[c.name] if eager else None) for c in known]
        return worst_of(self.program, found, with_eager=eager is not None)

    def expected(self, name: str) -> tuple[tuple[OutputCase, ...], dict[str, FloatArray] | None]:
        """What to compare outputs of a set with, and eager's outputs if there are any."""
        return _expected(self, name, self.has_eager(name))

    def has_eager(self, name: str) -> bool:
        """Whether it is known what eager PyTorch gives for a set."""
        return all(self._path(name, "eager", o.tensor).exists() for o in self.program.outputs)

    def read_reference(self, name: str) -> Reference:
        """The right outputs of a set."""
        tensors = [o.tensor for o in self.program.outputs]
        return Reference(
            {t.name: self._load(name, "output", t) for t in tensors},
            {t.name: self._load(name, "error", t).astype(np.float64) for t in tensors},
        )

    def read_eager(self, name: str) -> dict[str, FloatArray]:
        """What eager PyTorch gives for a set."""
        return {o.tensor.name: self._load(name, "eager", o.tensor) for o in self.program.outputs}

    def _save(self, name: str, role: str, tensor: Tensor, array: NDArray[Any]) -> None:
        path = self._path(name, role, tensor)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, array)

    def _load(self, name: str, role: str, tensor: Tensor) -> NDArray[Any]:
        array: NDArray[Any] = np.load(self._path(name, role, tensor))
        return array

    def _path(self, name: str, role: str, tensor: Tensor) -> Path:
        tensors = [*self.program.inputs, *(o.tensor for o in self.program.outputs)]
        return self.folder / name / f"{role}_{tensors.index(tensor)}.npy"


def to_arrays(program: Program, outputs: tuple[torch.Tensor, ...]) -> dict[str, FloatArray]:
    """Outputs in float64 by name."""
    named = zip((o.tensor.name for o in program.outputs), outputs, strict=True)
    return {name: t.double().cpu().numpy() for name, t in named}


def laid_out(tensor: Tensor, values: torch.Tensor) -> torch.Tensor:
    """The values in the type and layout of ``tensor``, in memory of their own."""
    import torch

    dtype = getattr(torch, tensor.dtype.torch_name)
    memory = torch.zeros(_span(tensor), dtype=dtype, device=values.device)
    fresh = memory.as_strided(tensor.shape, tensor.element_strides)
    write_once(fresh, values)
    return fresh


@lru_cache(maxsize=8)
def _expected(
    store: InputStore, name: str, with_eager: bool
) -> tuple[tuple[OutputCase, ...], dict[str, FloatArray] | None]:
    """Read once for all candidates."""
    known = cases(store.program, store.read_reference(name))
    return known, store.read_eager(name) if with_eager else None


def _span(tensor: Tensor) -> int:
    pairs = zip(tensor.shape, tensor.element_strides, strict=True)
    return 1 + sum((extent - 1) * stride for extent, stride in pairs)


def rotated_inputs(store: InputStore, l2_bytes: int, device: torch.device) -> list[InputSet]:
    """The random inputs of a store, as often as it takes."""
    inputs = store.program.inputs
    first = store.inputs(RANDOM, device)
    copies = rotation_sets(sum(t.bytes for t in inputs), l2_bytes) - 1
    pairs = list(zip(inputs, first, strict=True))
    return [first, *(tuple(laid_out(t, x) for t, x in pairs) for _ in range(copies))]
