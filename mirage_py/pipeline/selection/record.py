"""The record of an optimisation, as JSON: when, where and how it was made, its stages by the clock,
the times of the peers, what the kernels take, and every plan that was ranked.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from typing import Any

from mirage_py import __version__
from mirage_py.pipeline.selection.request import Request
from mirage_py.runtime.compile.compiled_facts import CompiledFacts
from mirage_py.runtime.env.environment import gpu
from mirage_py.runtime.tune.measured import Measured, TuneReport
from mirage_py.search.rank.instance import Instance
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.text.tiles_text import tiles_of

# Ranked plans that are written down; the cost model's order is told by these.
_PLANS = 200
# Stages that are written down: what comes later is in the last one's time.
_STAGES = 200
_PACKAGES = ("torch", "triton", "numpy", "egglog")


class Clock:
    """Takes the time of each stage that progress is told of."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self._progress = progress
        self._began = time.monotonic()
        self._stages: list[tuple[float, str]] = []

    def __call__(self, text: str) -> None:
        """Progress, as the request has it."""
        self._stages.append((time.monotonic() - self._began, text))
        self._progress(text)

    def document(self) -> dict[str, Any]:
        """``timeline``: when each stage began, and what it was; ``seconds`` of all."""
        shown = [[round(at, 2), text] for at, text in self._stages[:_STAGES]]
        return {"timeline": shown, "seconds": round(time.monotonic() - self._began, 2)}


def circumstances(request: Request) -> dict[str, Any]:
    """When, where and how."""
    found = gpu()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "gpu": found.name if found else "none",
            **({"cuda": found.cuda_version} if found else {}),
            "system": f"{platform.system()} {platform.machine()}",
        },
        "versions": {
            "mirage_py": __version__,
            "python": platform.python_version(),
            **{name: known for name in _PACKAGES if (known := _version(name))},
        },
        "request": {
            "backend": request.backend,
            "effort": request.effort,
            "seed": request.seed,
            **({"budget": request.budget} if _is_number(request.budget) else {}),
        },
    }


def ranked_plans(instances: Sequence[Instance]) -> list[dict[str, Any]]:
    """The plans that the cost model compared, best first, with what goes through memory."""
    return [
        {
            "kind": i.name,
            "backend": i.plan.backend,
            "tiles": tiles_of(i.plan),
            "time_us": round(i.estimate.time_us, 3),
            "bytes": moved_bytes(i.plan.ugraph),
            **({"doubt": i.doubt} if i.doubt else {}),
        }
        for i in instances[:_PLANS]
    ]


def moved_bytes(ugraph: UGraph) -> int:
    """Bytes of every tensor that a kernel reads or writes, once for each kernel."""
    return sum(
        ugraph.tensors[name].bytes
        for kernel in ugraph.kernels
        for name in dict.fromkeys((*kernel.read_tensors, *kernel.written_tensors))
    )


def race_record(report: TuneReport) -> dict[str, Any]:
    """What was measured beside the candidates, and how long each stage took."""
    return {
        "peers": _peer_times(report.measured),
        "seconds_of": {k: round(s, 2) for k, s in report.seconds.items()},
        "late": list(report.late),
    }


def _peer_times(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    return [
        {
            "name": m.name,
            "time_us": round(m.time_us, 3) if isfinite(m.time_us) else None,
            "p20_us": round(m.p20_us, 3) if isfinite(m.p20_us) else None,
            "p80_us": round(m.p80_us, 3) if isfinite(m.p80_us) else None,
            "source": "measured",
            "reason": str(m.reason or m.note),
        }
        for m in measured
        if m.plan is None
    ]


def kernel_resources(facts: Sequence[CompiledFacts]) -> list[dict[str, Any]]:
    """What each kernel takes by its machine code."""
    return [
        {
            "kernel": f.name,
            "capability": f.capability,
            "registers": f.registers,
            "spills": f.spills,
            "smem_bytes": f.smem_bytes,
        }
        for f in facts
    ]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _is_number(budget: float | None) -> bool:
    return budget is not None and isfinite(budget)
