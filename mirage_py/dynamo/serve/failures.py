"""Cached failures: regions that failed to optimise are not tried again at the next start.

    CACHE/failures/KEY.txt    the reason

A failure belongs to the sources that made it: whoever changes the package, or takes another torch,
tries again.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch

from mirage_py.cache.cached_results import Question
from mirage_py.errors import LostGpuError
from mirage_py.runtime.base.cached_text import cache_text, cached_text

_KIND = "failures"
# What may go well at the next start: memory, disks, and candidates that are put away by then.
_PASSING = (torch.OutOfMemoryError, MemoryError, OSError, LostGpuError)


def cached_failure(question: Question, dims: Sequence[str] = ()) -> str:
    """Why an optimisation has failed before, for many sizes of ``dims``; empty where it has not."""
    words = cached_text(_KIND, _content(question, dims))
    return "" if words is None else words or "it failed"


def cache_failure(
    question: Question, error: Exception, words: str, dims: Sequence[str] = ()
) -> None:
    """Remember why an optimisation failed; not what may pass, nor where there is no cache."""
    if not isinstance(error, _PASSING):
        cache_text(_KIND, _content(question, dims), words)


def _content(question: Question, dims: Sequence[str]) -> tuple[str, ...]:
    return question.key, ",".join(dims), torch.__version__, _sources_digest()


@functools.cache
def _sources_digest() -> str:
    """Of every module of the package."""
    package = Path(__file__).parents[2]
    found = hashlib.sha256()
    for folder in (package, *sorted(p.resolve() for p in package.iterdir() if p.is_symlink())):
        for path in sorted(folder.rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()
