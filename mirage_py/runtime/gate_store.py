"""The inputs and references of a float gate on disk, where a new worker finds them again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.dtypes import F16, F64
from mirage_py.ugraph.program import Program, Tensor
from mirage_py.verify.float_gate import FloatEvidence, Reference, judge

if TYPE_CHECKING:
    import torch

FloatArray = NDArray[np.float64]
_NAMES = "names.json"


@dataclass(frozen=True)
class GateStore:
    """Files under ``folder``: for each input set its inputs, the float64 outputs with the size of
    their rounding errors, and what eager PyTorch gives.
    """

    folder: Path
    program: Program

    @property
    def names(self) -> tuple[str, ...]:
        """The input sets, random first."""
        return tuple(json.loads((self.folder / _NAMES).read_text()))

    def write_names(self, names: tuple[str, ...]) -> None:
        """Written last: a store with names is complete."""
        (self.folder / _NAMES).write_text(json.dumps(names))

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
        reference, eager = _expected(self, name)
        return judge(self.program, reference, got, eager=eager)

    def expected(self, name: str) -> tuple[Reference, dict[str, FloatArray] | None]:
        """The right outputs of a set and eager's, if there are any."""
        tensors = [o.tensor for o in self.program.outputs]
        reference = Reference(
            {t.name: self._load(name, "output", t) for t in tensors},
            {t.name: self._load(name, "error", t).astype(np.float64) for t in tensors},
        )
        if not all(self._path(name, "eager", t).exists() for t in tensors):
            return reference, None
        return reference, {t.name: self._load(name, "eager", t) for t in tensors}

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
    fresh = torch.zeros(_span(tensor), dtype=dtype, device=values.device)
    return fresh.as_strided(tensor.shape, tensor.element_strides).copy_(values)


@lru_cache(maxsize=8)
def _expected(store: GateStore, name: str) -> tuple[Reference, dict[str, FloatArray] | None]:
    """Read once for all candidates."""
    return store.expected(name)


def _span(tensor: Tensor) -> int:
    pairs = zip(tensor.shape, tensor.element_strides, strict=True)
    return 1 + sum((extent - 1) * stride for extent, stride in pairs)
