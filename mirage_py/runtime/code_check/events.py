"""Events of a launch that other threads can observe, and the faults a check can report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

# Kinds of faults.
RACE = "race"
DEADLOCK = "deadlock"
BOUNDS = "out of bounds"
UNWRITTEN = "read before written"
PHASE = "ambiguous phase"
PROXY = "missing proxy fence"
REGISTERS = "registers under way"
BARRIER = "barrier misused"
LIFETIME = "outlives its block"
OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Fault:
    """``line`` is that of the PTX; ``where`` names block and thread."""

    kind: str
    line: int
    what: str
    where: str = ""

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"{self.kind}, line {self.line}: {self.what}{place}"


class UnsupportedError(Exception):
    """What this checker does not follow; the text says what."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch: ``tensors`` gives bytes of each pointer parameter (0: unknown), by parameter;
    ``maps`` the tensor map of others. ``waits``: it starts before the kernel in front has ended.
    ``pads``: tiles have places that nobody uses, so nobody need write them. ``by_triton``: two
    fences of proxies are not asked for, which Triton leaves out everywhere (docs/emitted_code.md).
    """

    blocks: int
    threads: int
    cluster: int
    smem_bytes: int
    tensors: dict[str, Tensor]
    maps: dict[str, Map] = field(default_factory=dict)
    waits: bool = False
    pads: bool = False
    by_triton: bool = False


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in global memory. ``is_output``: this kernel writes all of it, each element once.
    ``early``: the kernel in front does not write it.
    """

    name: str
    bytes: int
    element: int
    is_output: bool = False
    adds: bool = False
    early: bool = False


@dataclass(frozen=True, slots=True)
class Map:
    """What a tensor copy knows of its tensor; the contiguous axis first."""

    tensor: str
    shape: tuple[int, ...]
    box: tuple[int, ...]
    element: int
    early: bool = False


@dataclass(slots=True)
class Event:
    """Something that one warp does. ``mask`` (blocks or 1, 32) says which threads do it;
    ``address`` is a number or an array that broadcasts against it. What ``data`` holds depends on
    the kind.
    """

    kind: str
    line: int
    mask: Any
    address: Any = 0
    size: int = 0
    data: Any = None
    may: bool = False

    def lanes_of(self, block: int) -> Any:
        """The threads of one block that do it."""
        return self.mask[block if self.mask.shape[0] > 1 else 0]


def row_of(value: Any, block: int) -> Any:
    """The 32 values of one block."""
    if isinstance(value, np.ndarray):
        row = value[block if value.shape[0] > 1 else 0]
        return row if row.shape[0] == 32 else np.broadcast_to(row, 32)
    return np.full(32, value, np.int64)
