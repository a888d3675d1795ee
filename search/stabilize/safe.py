"""Selection of the families that may be ranked, in their numerically safe forms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mirage_py.codegen.lowering.lowering import with_factors_as_emitted
from mirage_py.search.extract.family import Family
from mirage_py.search.stabilize.epilogue_hoisting import with_hoisted_epilogues
from mirage_py.search.stabilize.normalised_partials import with_normalised_partials
from mirage_py.search.stabilize.stabilize import stabilized
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.verify.rounding.float_screen import FloatScreen


@dataclass(frozen=True, slots=True)
class SafeFamilies:
    """``ugraphs`` overflow nowhere that the program does not and are as accurate, each once, in the
    order of what they come from; those with normalised partial results come last. ``faults`` has
    for each family that is left out why. ``origins`` has for each µGraph the family that it was
    made of, ``unsafe`` those that are left out.
    """

    ugraphs: tuple[UGraph, ...]
    faults: tuple[str, ...]
    origins: tuple[UGraph, ...]
    unsafe: tuple[UGraph, ...]


def safe_families(families: Iterable[Family]) -> SafeFamilies:
    """The families stabilised, with epilogues hoisted; without those that rounding spoils."""
    origins = [f.ugraph for f in families]
    stable = [stabilized(u) for u in origins]
    screen = FloatScreen()
    faults = [s.faults[0] if s.faults else _fault(screen, s.ugraph) for s in stable]
    rows = list(zip(stable, faults, origins, strict=True))
    safe = [(s.ugraph, origin) for s, fault, origin in rows if not fault]
    normalised = [(n, o) for u, o in safe if (n := with_normalised_partials(u)) is not None]
    found: dict[str, tuple[UGraph, UGraph]] = {}
    for ugraph, origin in (*safe, *normalised):
        hoisted = with_hoisted_epilogues(ugraph)
        found.setdefault(hoisted.digest, (hoisted, origin))
    return SafeFamilies(
        tuple(ugraph for ugraph, _ in found.values()),
        tuple(fault for fault in faults if fault),
        tuple(origin for _, origin in found.values()),
        tuple(origin for _, fault, origin in rows if fault),
    )


def accurate(ugraphs: Iterable[UGraph]) -> tuple[UGraph, ...]:
    """Those of safe families, put together to others, that rounding does not spoil."""
    screen = FloatScreen()
    return tuple(u for u in ugraphs if not _fault(screen, u))


def _fault(screen: FloatScreen, ugraph: UGraph) -> str:
    """What rounding spoils in the kernels that would be emitted, empty if nothing."""
    return screen.fault(with_factors_as_emitted(ugraph))
