"""Copies of one input set that evict each other from L2, for timing in rotation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage_py.runtime.numerical_check.input_store import RANDOM, InputStore, laid_out
from mirage_py.runtime.timing.timing import rotation_sets

if TYPE_CHECKING:
    import torch

InputSet = tuple["torch.Tensor", ...]


def rotated_inputs(store: InputStore, l2_bytes: int, device: torch.device) -> list[InputSet]:
    """The random inputs of a store, as often as it takes."""
    inputs = store.program.inputs
    first = store.inputs(RANDOM, device)
    copies = rotation_sets(sum(t.bytes for t in inputs), l2_bytes) - 1
    pairs = list(zip(inputs, first, strict=True))
    return [first, *(tuple(laid_out(t, x) for t, x in pairs) for _ in range(copies))]
