"""Measured times of library operators on this GPU, cached: the costs of a graph if there is a GPU.

CACHE/operators/KEY.json    {operator with its types and attributes: microseconds}

Every library operator of the e-graph is timed once as torch runs it, in the layouts of inference:
channels last for images, row-major for everything else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from mirage_py.networks.operators import operator
from mirage_py.networks.operators.opaque import OPAQUE
from mirage_py.runtime.base.atomic import write_text
from mirage_py.runtime.base.private_folder import private_folder
from mirage_py.runtime.store.cache import toolchain
from mirage_py.runtime.timing.timing import time_interleaved
from mirage_py.search.networks.costs import LibraryCall
from mirage_py.search.networks.optimize_network import Measure

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
# Operators that are timed at most, the most expensive by the model first.
_MOST = 200
_REPS, _SETS = 5, 4


def measurement_for(device: torch.device) -> Measure | None:
    """What times operators on a device; None where nothing does."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return None
    return lambda calls: operator_times(calls, device)


def operator_times(calls: Sequence[LibraryCall], device: torch.device) -> dict[str, float]:
    """Microseconds by signature, of those that ran."""
    path = _path(device)
    known = _read(path)
    missing = {
        c.signature: c for c in calls if c.signature not in known and c.node.operator != OPAQUE.name
    }
    wanted = sorted(missing.values(), key=lambda c: -c.modelled_us)[:_MOST]
    with _disable_current_modes(), torch.no_grad():
        for call in wanted:
            entry = _entry(call, device)
            timed = time_interleaved({"it": entry}, _SETS, reps=_REPS)["it"]
            if timed.ran:
                known[call.signature] = timed.median_us
    if wanted:
        # Other processes have timed operators meanwhile.
        known = _read(path) | known
        with contextlib.suppress(OSError):
            write_text(path, json.dumps(known, indent=0, sort_keys=True) + "\n")
    return known


def _entry(call: LibraryCall, device: torch.device) -> Callable[[int], Any]:
    def tensor(number: int) -> torch.Tensor:
        kind = call.operands[number]
        made = torch.randn(kind.shape, device=device).to(getattr(torch, kind.dtype.torch_name))
        return made.contiguous(memory_format=_FORMATS.get(kind.rank, torch.contiguous_format))

    sets = [[tensor(n) for n in range(len(call.operands))] for _ in range(_SETS)]
    row, attributes = operator(call.node.operator), dict(call.node.attributes)
    return lambda number: row.over_torch(sets[number], attributes)


def _read(path: Path) -> dict[str, float]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {str(k): float(v) for k, v in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _path(device: torch.device) -> Path:
    content = [torch.cuda.get_device_name(device), torch.__version__, sorted(toolchain().items())]
    key = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]
    return private_folder("operators") / f"{key}.json"
