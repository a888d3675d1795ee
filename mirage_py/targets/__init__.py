"""The GPUs the project knows; one file each."""

from __future__ import annotations

from mirage_py.errors import InputError
from mirage_py.targets.a100 import A100
from mirage_py.targets.b200 import B200
from mirage_py.targets.base import Target
from mirage_py.targets.h100 import H100
from mirage_py.targets.h200 import H200

ALL_TARGETS: tuple[Target, ...] = (A100, H100, H200, B200)

__all__ = ["A100", "ALL_TARGETS", "B200", "H100", "H200", "Target", "target"]


def target(name: str) -> Target:
    """The target called ``name``, or InputError."""
    for known in ALL_TARGETS:
        if known.name == name.lower():
            return known
    names = ", ".join(t.name for t in ALL_TARGETS)
    raise InputError(f"unknown target '{name}'", repair=f"use auto or one of {names}")
