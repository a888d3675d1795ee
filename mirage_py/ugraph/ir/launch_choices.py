"""Allowed values of launch options, their documentation, and their text in stored plans."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_COUNT = re.compile(r"[1-9][0-9]{0,8}")
_GRID_AXES = 3


class Arch(StrEnum):
    """The instruction set that CUDA text may use."""

    SM_80 = "sm_80"
    SM_90A = "sm_90a"


class BlockOrder(StrEnum):
    """The order in which the blocks of a grid start."""

    GROUPED = "grouped"
    BACKWARDS = "backwards"
    LONGEST = "longest"


class MatmulInstruction(StrEnum):
    """The tensor-core instruction of a matmul on sm_90a."""

    WGMMA = "wgmma"
    MMA = "mma"


class OverlapMode(StrEnum):
    """Where a matmul that runs one iteration late is waited for."""

    ON = "on"
    ACROSS = "across"


class NextStart(StrEnum):
    """When a kernel lets the next one start: once it has waited, or before its last stores."""

    WAITED = "waited"
    STORES = "stores"


class Precision(StrEnum):
    """How matmuls of float32 are computed: by multiply-adds on CUDA cores, or on tensor cores with
    operands rounded to TF32, or with each operand as the sum of two numbers of TF32 (three
    products, about as exact as float32).
    """

    IEEE = "ieee"
    TF32 = "tf32"
    TF32X3 = "tf32x3"


class RescalingMode(StrEnum):
    """When the sums of an online softmax are rescaled."""

    LAZY = "lazy"
    OPTIMISTIC = "optimistic"


class StoreMode(StrEnum):
    """How threads exchange a result before they store it."""

    LANES = "lanes"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Text:
    """The text of an option's values other than its default; ``read`` raises ValueError.

    ``values`` says what the text may be.
    """

    read: Callable[[str], Any]
    write: Callable[[Any], str]
    values: tuple[str, ...]


def choice(kind: type[StrEnum]) -> Text:
    """One of the members of an enum."""
    return Text(kind, str, tuple(kind))


def switch(text: str, value: bool = True) -> Text:
    """A bool, whose ``value`` other than the default has this text."""
    members: Mapping[str, bool] = {text: value}
    return Text(lambda given: _one_of(members, given), lambda _: text, (text,))


def _one_of(members: Mapping[str, bool], text: str) -> bool:
    if text not in members:
        raise ValueError(text)
    return members[text]


def _read_count(text: str) -> int:
    if not _COUNT.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _read_grid(text: str) -> tuple[int, ...]:
    counts = tuple(_read_count(part) for part in text.split("x"))
    if len(counts) != _GRID_AXES or any(c & (c - 1) for c in counts):
        raise ValueError(text)
    return counts


def _read_names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if "" in names or len(dict.fromkeys(names)) < len(names):
        raise ValueError(text)
    return names


COUNT = Text(_read_count, str, ("a number from 1 on",))
WARP_GRID = Text(_read_grid, lambda v: "x".join(map(str, v)), ("powers of two as 1x4x1",))
NAMES = Text(_read_names, ",".join, ("names with commas between them",))


@dataclass(frozen=True, slots=True)
class Option:
    """What is known of a launch option.

    ``key`` is its name in stored plans, ``backend`` what reads it, ``capability`` the first compute
    capability on which it has an effect. ``does``, ``default`` and ``cost`` are for the reference
    page.
    """

    key: str
    text: Text
    backend: str
    capability: int
    default: str
    does: str
    cost: str

    def holds(self, value: object) -> bool:
        """Whether the value is one that the option's text can say."""
        try:
            again = self.text.read(self.text.write(value))
        except (TypeError, ValueError):
            return False
        return type(again) is type(value) and bool(again == value)
