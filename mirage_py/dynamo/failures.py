"""Regions that fail while they are optimised, on disk: the next start leaves them alone at once.

    CACHE/failures/KEY.txt    why, in words

A failure belongs to the sources that made it: whoever changes the package, or takes another torch,
tries again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from pathlib import Path

import torch

from mirage_py.errors import LostGpuError
from mirage_py.known_results import Question
from mirage_py.runtime.atomic import write_text
from mirage_py.settings import Settings

# What may go well at the next start: memory, disks, and candidates that are put away by then.
_PASSING = (torch.OutOfMemoryError, MemoryError, OSError, LostGpuError)


def known_failure(question: Question) -> str:
    """Why an optimisation has failed before; empty where it has not."""
    try:
        words = _path(question).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
    return words or "it failed"


def keep_failure(question: Question, error: Exception, words: str) -> None:
    """Remember why an optimisation failed; not what may pass, nor where there is no cache."""
    if not isinstance(error, _PASSING):
        with contextlib.suppress(OSError):
            write_text(_path(question), words + "\n")


def _path(question: Question) -> Path:
    content = json.dumps([question.key, torch.__version__, _sources_digest()])
    key = hashlib.sha256(content.encode()).hexdigest()
    return Settings.from_env().cache_dir / "failures" / f"{key}.txt"


@functools.cache
def _sources_digest() -> str:
    """Of every module of the package."""
    package = Path(__file__).parents[1]
    found = hashlib.sha256()
    for folder in (package, *sorted(p.resolve() for p in package.iterdir() if p.is_symlink())):
        for path in sorted(folder.rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()
