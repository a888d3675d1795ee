"""Which of the families found may be ranked, and in which forms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mirage_py.search.family import Family
from mirage_py.search.finished import finished
from mirage_py.search.normalised_parts import with_normalised_parts
from mirage_py.search.stabilize import stabilized
from mirage_py.ugraph.ugraph import UGraph


@dataclass(frozen=True, slots=True)
class SafeFamilies:
    """``ugraphs`` overflow nowhere that the program does not, each once, in the order of what they
    come from; those with normalised parts are behind the others. ``faults`` has for each family
    that is left out why.
    """

    ugraphs: tuple[UGraph, ...]
    faults: tuple[str, ...]


def safe_families(families: Iterable[Family]) -> SafeFamilies:
    """The families stabilised, with what they hand over finished."""
    stable = [stabilized(f.ugraph) for f in families]
    safe = [s.ugraph for s in stable if not s.faults]
    normalised = [n for u in safe if (n := with_normalised_parts(u)) is not None]
    found = {u.digest: u for u in map(finished, (*safe, *normalised))}
    return SafeFamilies(tuple(found.values()), tuple(s.faults[0] for s in stable if s.faults))
