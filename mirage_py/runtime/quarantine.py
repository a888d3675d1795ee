"""Plans that broke the GPU context of a process: they are not launched on this machine any more.

    CACHE/quarantine/KEY.txt    what happened, in words

Candidates run in a worker first. What passed there may still go wrong elsewhere, where memory lies
otherwise, and then it is the user's process that ends: once, and not at every start.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mirage_py import __version__
from mirage_py.runtime.atomic import write_text
from mirage_py.settings import Settings
from mirage_py.ugraph.json_form import dump_text
from mirage_py.ugraph.plan import Plan


def put_away(plan: Plan, words: str) -> None:
    """Remember that a plan is not to be launched, and why; not where there is no cache."""
    with contextlib.suppress(OSError):
        write_text(_path(plan), words + "\n")


def why_not(plan: Plan) -> str:
    """Why a plan is not to be launched; empty where it may be."""
    try:
        words = _path(plan).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
    return f"it is not launched: {words or 'it broke the GPU context of a process'}"


def _path(plan: Plan) -> Path:
    """Another version of a compiler makes another kernel of a plan."""
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = ""
    content = json.dumps([dump_text(plan), __version__, triton])
    key = hashlib.sha256(content.encode()).hexdigest()
    return Settings.from_env().cache_dir / "quarantine" / f"{key}.txt"
