"""Every program of the suite, by its name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace

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


def program_at(name: str) -> WildProgram:
    """A program by its name, at other real sizes where it says so: ``latent_attention@B=1:S=8192``.

    Raises KeyError where there is no such program or size.
    """
    own, _, sizes = name.partition("@")
    program = programs()[own]
    extents = dict(program.sizes)
    for size in filter(None, sizes.split(":")):
        dim, _, extent = size.partition("=")
        extents[dim] = (extents[dim][0], int(extent))
    return replace(program, name=name, sizes=extents)
