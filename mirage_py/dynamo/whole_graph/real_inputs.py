"""Inputs for the benchmark of a whole graph: the user's own, with every change to them undone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses import FakeTensor

_PLAIN = (int, float, bool, str, type(None))


class NotBenchmarkedError(Exception):
    """The reason why a graph cannot be benchmarked."""


class SavedInputs:
    """The bytes of some tensors, as they were: other tensors may share them, or overlap."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._memory = [_memory(t) for t in tensors]
        self._saved = [m.clone() for m in self._memory]

    def restore(self) -> None:
        """Make the tensors what they were, bit by bit."""
        for memory, saved in zip(self._memory, self._saved, strict=True):
            memory.copy_(saved)


class RandomStates:
    """The states of random numbers on the CPU and on ``device``."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._on_cpu = torch.get_rng_state()
        self._on_gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore(self) -> None:
        """As if no number had been drawn."""
        torch.set_rng_state(self._on_cpu)
        if self._on_gpu is not None:
            torch.cuda.set_rng_state(self._on_gpu, self._device)


def real_inputs(inputs: Sequence[Any]) -> list[Any]:
    """What the compiled graph will be called with: of symbols their values at hand.

    Raises NotBenchmarkedError where an input has no data, or is of no plain kind.
    """
    return [_real(x) for x in inputs]


def written_inputs(
    inputs: Sequence[Any], metadata: Any, module: torch.nn.Module
) -> list[torch.Tensor]:
    """Those that the graph writes to; ``metadata`` is what AOTAutograd found out about its inputs
    (``TracingContext.fw_metadata``), before which it has put the tensors that ``module`` holds.

    Raises NotBenchmarkedError where they cannot be put back: parameters, of which there is no copy,
    and inputs whose shape or memory changes.
    """
    held = [*module.parameters(), *module.buffers()]
    facts = getattr(metadata, "input_info", ())
    # AOTAutograd counts tensors that share memory, and are written to, as one.
    if len(facts) != len(held) + len(inputs) or metadata.tokens:
        raise NotBenchmarkedError("it is not known what it writes to")
    if any(fact.mutates_data or fact.mutates_metadata for fact in facts[: len(held)]):
        raise NotBenchmarkedError("it writes to what the model holds")
    facts = facts[len(held) :]
    written = []
    for value, fact in zip(inputs, facts, strict=True):
        if fact.mutates_metadata or fact.mutation_inductor_storage_resize:
            raise NotBenchmarkedError("it changes the shape or the memory of an input")
        if fact.mutates_data and isinstance(value, torch.nn.Parameter):
            raise NotBenchmarkedError("it writes to parameters")
        if fact.mutates_data:
            written.append(value)
    return written


def _real(value: Any) -> Any:
    if isinstance(value, FakeTensor):
        raise NotBenchmarkedError("its inputs have no data")
    if isinstance(value, torch.Tensor):
        plain = type(value) in (torch.Tensor, torch.nn.Parameter)
        if not plain or value.layout is not torch.strided:
            raise NotBenchmarkedError("an input is no plain tensor")
        # Inductor's kernels take memory for aligned, which its CUDA graphs see to and a call past
        # them does not.
        if value.untyped_storage().data_ptr() % 16:
            raise NotBenchmarkedError("the memory of an input is not aligned")
        return value
    if isinstance(value, _PLAIN):
        return value
    hint = getattr(getattr(value, "node", None), "hint", None)
    if isinstance(hint, (int, float)):
        return hint
    raise NotBenchmarkedError(f"an input is a {type(value).__name__}")


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes from the first element to the last one, as a tensor that shares them."""
    strides = zip(tensor.shape, tensor.stride(), strict=True)
    elements = 1 + sum((n - 1) * s for n, s in strides) if tensor.numel() else 0
    size = tensor.element_size()
    first, length = tensor.storage_offset() * size, elements * size
    alias = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    with torch.no_grad():
        return alias.set_(tensor.untyped_storage(), first, (length,), (1,))
