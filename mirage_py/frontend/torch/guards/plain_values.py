"""Python values that are compared by value instead of identity."""

from __future__ import annotations

import dataclasses
from enum import Enum
from math import copysign, isnan
from types import EllipsisType, NoneType
from typing import Any

import torch

_PLAIN = (
    bool, int, float, complex, str, bytes, NoneType, EllipsisType, slice, range,
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size,
)  # fmt: skip


def is_plain(value: Any) -> bool:
    """Whether it is a number, a text or the like, or made of such and cannot change."""
    if type(value) in _PLAIN or isinstance(value, Enum):
        return True
    if isinstance(value, (tuple, frozenset)):
        return all(is_plain(v) for v in value)
    kind = getattr(type(value), "__dataclass_params__", None)
    if kind is not None and kind.frozen and kind.eq:
        return all(is_plain(getattr(value, f.name)) for f in dataclasses.fields(value))
    return False


def sign(value: Any) -> float:
    """That of a float: 0.0 equals -0.0, and what is divided by them does not."""
    return copysign(1.0, value) if isinstance(value, float) else 0.0


def is_same_value(new: Any, old: Any) -> bool:
    """Whether two values say the same to a program: 1, 1.0 and True do not, nor 0.0 and -0.0."""
    if new is old:
        return True
    if type(new) is not type(old) or not is_plain(new):
        return False
    if isinstance(new, tuple):
        return len(new) == len(old) and all(map(is_same_value, new, old))
    if isinstance(new, float) and isnan(new):
        return isnan(old)
    return bool(new == old) and sign(new) == sign(old)
