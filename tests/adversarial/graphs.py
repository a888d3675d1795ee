"""Right µGraphs to mutate: what searches of every example program found, as texts."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from adversarial.programs import given, programs

from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.text.text_form import parse_ugraph

FOLDER = Path(__file__).parents[1] / "data" / "ugraphs"


@cache
def names() -> tuple[str, ...]:
    """``program.kind`` of every stored µGraph."""
    return tuple(sorted(p.stem for p in FOLDER.glob("*.ug")))


@cache
def graph(name: str) -> UGraph:
    """A stored µGraph, with tiles."""
    return parse_ugraph((FOLDER / f"{name}.ug").read_text(encoding="utf-8"), name)


def program_of(name: str) -> Program:
    """What it has to compute, in the form that is searched."""
    return programs()[name.partition(".")[0]]


def given_of(name: str) -> Program:
    """What it has to compute, as it is written."""
    return given()[name.partition(".")[0]]
