"""Formatting of a derivation: each law, and what it rewrites into what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from mirage_py.axioms.certificate.checker import fault_of
from mirage_py.axioms.proof.steps import Derivation, Proof, Step, read_proof, term_at
from mirage_py.cli.format.kernel_format import count_text
from mirage_py.cli.format.term_format import term_text
from mirage_py.errors import UnsupportedError
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.rewrite.masks import lower_masks
from mirage_py.ugraph.text.json_form import to_json

# Of a long derivation this many steps are shown.
_STEPS = 24
# Operators of an expression that are shown, from its root.
_DEPTH = 5
_REORDERING = ("commutes", "commute", "associates", "associate")


def starting_points(program: Program, ugraph: UGraph) -> Iterator[tuple[str, Program]]:
    """Where a derivation may begin: what it is called, and the program it is."""
    yield "the program", program
    with suppress(UnsupportedError):
        yield "the program with masks as factors", lower_masks(program)
    yield "the program's normal form", ugraph.program


def replayed(program: Program, ugraph: UGraph, document: Mapping[str, Any]) -> tuple[str, str]:
    """(what a stored derivation begins with, what is wrong with it or "").

    Raises FormatError for what is no derivation.
    """
    read_proof(document)
    first, last = "", to_json(ugraph)
    for name, start in starting_points(program, ugraph):
        fault = fault_of(to_json(start), last, document)
        if not fault:
            return name, ""
        first = first or fault
    return "", first


def proof_summary(proof: Proof, start: str) -> str:
    """How long it is, and what it rests on."""
    if not proof.length:
        return f"the µGraph's expression is that of {start}, without any step"
    return (
        f"{count_text(proof.length, 'step')} by {count_text(len(proof.laws), 'law')} lead from "
        f"{start} to the µGraph"
    )


def format_derivation(document: Mapping[str, Any]) -> tuple[str, ...]:
    """A stored derivation line by line; runs of steps that only reorder are counted.

    Raises FormatError for what is no derivation.
    """
    proof = read_proof(document)
    return tuple(line for d in proof.derivations for line in _output(d))


def _output(derivation: Derivation) -> Iterator[str]:
    if not derivation.steps:
        yield f"{derivation.output}: the same expression"
        return
    yield f"{derivation.output}: {count_text(len(derivation.steps), 'step')}"
    shown = reordered = 0
    for number, step in enumerate(derivation.steps):
        if step.law.endswith(_REORDERING):
            reordered += 1
            continue
        if shown == _STEPS:
            yield f"  and {len(derivation.steps) - number} more: --json has all of them"
            return
        yield from _reorderings(reordered)
        reordered = 0
        shown += 1
        yield from _step(step)
    yield from _reorderings(reordered)


def _reorderings(count: int) -> Iterator[str]:
    if count:
        yield f"  (operands reordered: {count_text(count, 'step')})"


def _step(step: Step) -> Iterator[str]:
    before, after = (term_text(term_at(t, step.at), _DEPTH) for t in (step.before, step.after))
    backwards = "" if step.forward else ", read backwards"
    yield f"  {step.law}{backwards}"
    yield f"    {before}"
    yield f"    = {after}"
