"""Formatting of what tells a plan from others: tiles, loops, launch options, and what its kernels
take.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any

from mirage_py.runtime.tune.measured import Measured
from mirage_py.search.tilings.kinds import describe
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.text.json_form import dump_text


def digest(plan: Plan) -> str:
    """16 hexadecimal digits of the plan's whole content."""
    return hashlib.sha256(dump_text(plan).encode()).hexdigest()[:16]


def described(plan: Plan) -> list[dict[str, Any]]:
    """The plan kernel by kernel."""
    program = plan.ugraph.program
    found: list[dict[str, Any]] = []
    for kernel, options in zip(plan.ugraph.kernels, plan.options, strict=True):
        if not isinstance(kernel, BlockGraph):
            found.append({"name": kernel.name, "library": kernel.op})
            continue
        parts = [d for d in kernel.grid_tiles if d not in program.tensors and d.endswith("_part")]
        found.append(
            {
                "name": kernel.name,
                "grid": {a.dim: a.tile for a in kernel.grid},
                "parts": {d: program.sizes[d] for d in parts},
                "loops": [[s.loop, s.tile] for s in kernel.sections if s.loop is not None],
                "num_warps": options.num_warps,
                "num_stages": list(options.num_stages),
                "flags": dict(options.flags),
            }
        )
    return found


def resources(measured: Measured) -> list[dict[str, Any]]:
    """Registers of a thread, spilled values and shared memory of each compiled kernel."""
    return [
        {
            "name": f.name,
            "registers": f.registers,
            "spills": f.spills,
            "smem_bytes": f.smem_bytes,
        }
        for f in measured.facts
    ]


def best_of_kinds(timed: Iterable[Measured]) -> dict[str, float]:
    """The fastest time of each kind of plan: one kernel, several, split, with library calls."""
    best: dict[str, float] = {}
    for measured in timed:
        assert measured.plan is not None
        kind = describe(measured.plan.ugraph)
        best[kind] = min(best.get(kind, math.inf), measured.time_us)
    return {kind: round(time_us, 2) for kind, time_us in sorted(best.items())}
