"""Every program of the suite, by its name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from benchmarks.wild.program import WildProgram, entered

FAMILIES = (
    "attention",
    "caches",
    "positions",
    "norms",
    "gates",
    "moe",
    "losses",
    "samplers",
    "recurrences",
    "convolutions",
    "vision",
    "diffusion",
    "quantised",
    "blocks",
)


def programs() -> Mapping[str, WildProgram]:
    """In the order of the families."""
    for family in FAMILIES:
        importlib.import_module(f"benchmarks.wild.programs.{family}")
    return entered()
