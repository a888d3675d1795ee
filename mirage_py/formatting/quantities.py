"""Ages and sizes as people write them: ``30d``, ``500MB``."""

from __future__ import annotations

import re

from mirage_py.arguments import shown
from mirage_py.errors import InputError

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_WORDS = (("w", "week"), ("d", "day"), ("h", "hour"), ("m", "minute"))
_JUST_NOW_S = 60.0
_FORM = re.compile(r"(?P<number>[0-9]{1,15}(?:\.[0-9]{1,15})?)\s*(?P<unit>[A-Za-z]*)")


def read_age(text: str, option: str) -> float:
    """Seconds of ``90s``, ``45m``, ``12h``, ``30d`` or ``2w``. Raises InputError."""
    found = _FORM.fullmatch(text.strip())
    if found is None or found["unit"].lower() not in _SECONDS:
        raise InputError(
            f"{shown(text)} is not an age",
            where=option,
            why="an age is a number and s, m, h, d or w",
            repair=f"for instance {option} 30d",
        )
    return float(found["number"]) * _SECONDS[found["unit"].lower()]


def read_size(text: str, option: str) -> int:
    """Bytes of ``500MB``, ``2GB``, ``100kB`` or a plain number. Raises InputError."""
    found = _FORM.fullmatch(text.strip())
    if found is None or found["unit"].lower() not in _BYTES:
        raise InputError(
            f"{shown(text)} is not a size",
            where=option,
            why="a size is a number and kB, MB or GB",
            repair=f"for instance {option} 500MB",
        )
    return int(float(found["number"]) * _BYTES[found["unit"].lower()])


def age_text(seconds: float) -> str:
    """``3 days ago``, in the largest unit that fits once."""
    if seconds < _JUST_NOW_S:
        return "just now"
    unit, word = next((u, w) for u, w in _WORDS if seconds >= _SECONDS[u])
    count = int(seconds // _SECONDS[unit])
    return f"{count} {word}{'s' if count != 1 else ''} ago"
