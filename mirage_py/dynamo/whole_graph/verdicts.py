"""Cached verdicts of whole-graph benchmarks: the next start compiles the winner alone.

CACHE/verdicts/KEY.json    {"winner": "ours", "chained" or "torch", "words": all times}
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from mirage_py.dynamo.regions.region_graph import content_key
from mirage_py.dynamo.serve.options import BackendOptions
from mirage_py.dynamo.serve.region_call import layouts_of
from mirage_py.runtime.base.atomic import write_text
from mirage_py.runtime.base.private_folder import private_folder
from mirage_py.runtime.store.cache import toolchain

OURS, CHAINED, TORCH = "ours", "chained", "torch"
# Options that change nothing of what is benchmarked.
_ASIDE = ("whole_graph", "cache", "report")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who was faster, ``OURS``, ``CHAINED`` or ``TORCH``, and how that was found."""

    winner: str
    words: str


def verdict_key(
    graph: GraphModule, inputs: Sequence[Any], options: BackendOptions, target: str
) -> str:
    """The digest of everything that a verdict may depend on: the graph as AOTAutograd hands it
    over, the layouts of its inputs at hand, the options, the GPU, and the versions.
    """
    inside = [m for _, m in graph.named_modules() if isinstance(m, GraphModule)]
    content = {
        "graphs": [content_key(m) for m in inside],
        "inputs": [str(x) for x in layouts_of(inputs)],
        "options": {
            f.name: _plain(getattr(options, f.name))
            for f in fields(options)
            if f.name not in _ASIDE
        },
        "gpu": [target, torch.cuda.get_device_name() if torch.cuda.is_available() else "none"],
        "versions": {**toolchain(), "torch": torch.__version__},
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def cached_verdict(key: str) -> Verdict | None:
    """What was found before; None where nothing is, or nothing that can be read."""
    try:
        read = json.loads(_path(key).read_text(encoding="utf-8"))
        found = Verdict(read["winner"], str(read["words"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if found.winner in (OURS, CHAINED, TORCH) else None


def cache_verdict(key: str, verdict: Verdict) -> None:
    """Remember a verdict; not where the cache cannot be written."""
    with contextlib.suppress(OSError):
        write_text(_path(key), json.dumps(asdict(verdict)) + "\n")


def _plain(value: Any) -> str:
    return str(sorted(value.items())) if hasattr(value, "items") else str(value)


def _path(key: str) -> Path:
    return private_folder("verdicts") / f"{key}.json"
