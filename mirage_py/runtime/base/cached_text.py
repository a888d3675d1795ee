"""Reasons why something was given up, cached on disk as text: CACHE/KIND/KEY.txt."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from mirage_py.runtime.base.atomic import write_text
from mirage_py.runtime.base.private_folder import private_folder


def cache_text(kind: str, content: Sequence[str], words: str) -> None:
    """Remember ``words`` about ``content``; not where there is no cache."""
    with contextlib.suppress(OSError):
        write_text(_path(kind, content), words + "\n")


def cached_text(kind: str, content: Sequence[str]) -> str | None:
    """The cached text, possibly empty; None where there is none."""
    try:
        return _path(kind, content).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def has_texts(kind: str) -> bool:
    """Whether any text of a kind is cached."""
    return next(private_folder(kind).glob("*.txt"), None) is not None


def _path(kind: str, content: Sequence[str]) -> Path:
    key = hashlib.sha256(json.dumps([*content]).encode()).hexdigest()
    return private_folder(kind) / f"{key}.txt"
