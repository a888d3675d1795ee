"""Inputs and references of a numerical check on disk, where a new worker finds them; copies for
timing in rotation.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage_py.runtime.base.atomic import write_text
from mirage_py.runtime.base.layouts import laid_out
from mirage_py.runtime.timing.timing import rotation_sets
from mirage_py.ugraph.ir.dtypes import DType
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.verify.numerical_check.float_case import EagerError
from mirage_py.verify.numerical_check.input_changes import kept_as
from mirage_py.verify.numerical_check.numerical_check import Reference
from mirage_py.verify.numerical_check.periodic_input import PeriodicInput
from mirage_py.verify.numerical_check.places import Places

if TYPE_CHECKING:
    import torch

InputSet = tuple["torch.Tensor", ...]

FloatArray = NDArray[np.float64]
# The set that is timed on.
RANDOM = "random"
_EAGER = "eager.json"
_MEASURED = "measured"
_LOCK = "lock"
# Elements whose places are computed at a time.
_AT_A_TIME = 1 << 24


@dataclass(frozen=True)
class InputStore:
    """Files under ``folder``: for each input set its inputs, the float64 outputs with the size of
    their rounding errors, and how far eager PyTorch is from them.
    """

    folder: Path
    program: Program

    def write_inputs(self, name: str, inputs: Mapping[str, PeriodicInput]) -> None:
        """Keep inputs, which are rounded to their types already, in a type that holds them."""
        for tensor in self.program.inputs:
            table = inputs[tensor.name].table.astype(kept_as(tensor.dtype))
            self._save(name, "table", tensor, table)
            self._save(name, "kind", tensor, inputs[tensor.name].kind)

    def write_reference(self, name: str, reference: Reference) -> None:
        """Keep the right outputs."""
        if reference.is_measured:
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            (self.folder / name / _MEASURED).touch()
        for tensor in (o.tensor for o in self.program.outputs):
            self._save(name, "output", tensor, reference.outputs[tensor.name])
            with np.errstate(over="ignore"):
                errors = reference.errors[tensor.name].astype(np.float32)
            self._save(name, "error", tensor, errors)
            if tensor.name in reference.places:
                self._save(name, "places", tensor, reference.places[tensor.name].flat)

    @contextlib.contextmanager
    def being_written(self, name: str) -> Iterator[bool]:
        """Whether the reference of a set is missing, while no other process looks for it."""
        folder = self.folder / name
        handle = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield not all(
                self._path(name, "error", o.tensor).exists() for o in self.program.outputs
            )
        finally:
            os.close(handle)

    def write_eager(self, name: str, errors: Sequence[EagerError]) -> None:
        """Keep how far off each output is as eager PyTorch computes it."""
        write_text(self.folder / name / _EAGER, json.dumps([astuple(e) for e in errors]))

    def inputs(self, name: str, device: torch.device) -> tuple[torch.Tensor, ...]:
        """The input tensors of a set, in the layout that the program says."""
        return tuple(
            laid_out(tensor, on_device(self._read_input(name, tensor), device, tensor.dtype))
            for tensor in self.program.inputs
        )

    def _read_input(self, name: str, tensor: Tensor) -> PeriodicInput:
        table, kind = (self._load(name, role, tensor) for role in ("table", "kind"))
        return PeriodicInput(tensor.shape, table, kind)

    def read_reference(self, name: str) -> Reference:
        """The right outputs of a set."""
        tensors = [o.tensor for o in self.program.outputs]
        return Reference(
            {t.name: self._load(name, "output", t) for t in tensors},
            {t.name: self._load(name, "error", t) for t in tensors},
            {
                t.name: Places(t.shape, self._load(name, "places", t))
                for t in tensors
                if self._path(name, "places", t).exists()
            },
            (self.folder / name / _MEASURED).exists(),
        )

    def read_eager(self, name: str) -> list[EagerError] | None:
        """How far off each output of eager PyTorch is; None if it did not run."""
        try:
            found = json.loads((self.folder / name / _EAGER).read_bytes())
        except FileNotFoundError:
            return None
        return [
            EagerError(error, far, tuple(map(tuple, stretches)), tuple(together))
            for error, far, stretches, together in found
        ]

    def _save(self, name: str, role: str, tensor: Tensor, array: NDArray[Any]) -> None:
        path = self._path(name, role, tensor)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, array)

    def _load(self, name: str, role: str, tensor: Tensor) -> NDArray[Any]:
        array: NDArray[Any] = np.load(self._path(name, role, tensor), mmap_mode="c")
        return array

    def _path(self, name: str, role: str, tensor: Tensor) -> Path:
        tensors = [*self.program.inputs, *(o.tensor for o in self.program.outputs)]
        return self.folder / name / f"{role}_{tensors.index(tensor)}.npy"


def to_arrays(program: Program, outputs: tuple[torch.Tensor, ...]) -> dict[str, FloatArray]:
    """Outputs in float64 by name."""
    named = zip((o.tensor.name for o in program.outputs), outputs, strict=True)
    return {name: t.double().cpu().numpy() for name, t in named}


def on_device(
    given: PeriodicInput, device: torch.device, dtype: DType | None = None
) -> torch.Tensor:
    """All elements of an input; of one in a half ``dtype`` in no wider type."""
    import torch

    table, kind = (torch.from_numpy(x).to(device) for x in (given.table, given.kind))
    if dtype is not None and dtype.is_half:
        table = table.to(getattr(torch, dtype.torch_name))
    kinds, period = given.table.shape
    size = prod(given.shape)
    if kinds == 1:
        return table[0].repeat(-(-size // period))[:size].reshape(given.shape)
    found = torch.empty(size, dtype=table.dtype, device=device)
    of_element = kind.expand(given.shape).reshape(-1)
    for start in range(0, size, _AT_A_TIME):
        part = slice(start, min(start + _AT_A_TIME, size))
        places = torch.arange(part.start, part.stop, device=device) % period
        found[part] = table.reshape(-1)[places + of_element[part].long() * period]
    return found.reshape(given.shape)


def rotated_inputs(store: InputStore, l2_bytes: int, device: torch.device) -> list[InputSet]:
    """The random inputs of a store, as often as it takes."""
    inputs = store.program.inputs
    first = store.inputs(RANDOM, device)
    copies = rotation_sets(sum(t.bytes for t in inputs), l2_bytes) - 1
    pairs = list(zip(inputs, first, strict=True))
    return [first, *(tuple(laid_out(t, x) for t, x in pairs) for _ in range(copies))]
