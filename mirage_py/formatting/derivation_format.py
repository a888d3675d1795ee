"""Formatting of a derivation: each law, and what it rewrites into what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from mirage_py.axioms.certificate.checker import fault_of
from mirage_py.axioms.proof.steps import Derivation, Proof, Step, read_proof, term_at
from mirage_py.axioms.terms.term import REDUCTIONS, Term
from mirage_py.errors import UnsupportedError
from mirage_py.formatting.kernel_format import count_text
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.rewrite.masks import lower_masks
from mirage_py.ugraph.text.json_form import to_json

_SIGNS = {"add": " + ", "sub": " - ", "mul": " * ", "div": " / "}
_COMPARED = {"lt": " < ", "le": " <= ", "gt": " > ", "ge": " >= ", "eq": " == ", "ne": " != "}
# What binds tighter has the higher number.
_PRECEDENCE = {"add": 1, "sub": 1, "mul": 2, "div": 2, "neg": 3, "square": 4}
_ATOM = 5
_CALLED = {"maximum": "max", "minimum": "min"}

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


def term_text(term: Term, depth: int) -> str:
    """The term, with "..." for what lies deeper than ``depth`` operators."""
    return _text(term, depth)[0]


def _text(term: Term, depth: int) -> tuple[str, int]:
    if term.op == "size":
        return f"|{term.attr}|", _ATOM
    if not term.args:
        return term.attr, _ATOM
    if depth == 0:
        return "...", _ATOM
    if term.op in REDUCTIONS:
        axes, inside = [term.attr], term.args[0]
        while inside.op == term.op:
            axes.append(inside.attr)
            inside = inside.args[0]
        return f"{term.op}[{', '.join(axes)}]({_text(inside, depth - 1)[0]})", _ATOM
    own = _PRECEDENCE.get(term.op, 0)
    if term.op in _SIGNS:
        left = _in_brackets(term.args[0], depth - 1, own)
        # a - (b + c) keeps its brackets, and so does every sum or product on the right.
        right = _in_brackets(term.args[1], depth - 1, own + 1)
        return f"{left}{_SIGNS[term.op]}{right}", own
    if term.op in _COMPARED:
        left, right = (_in_brackets(a, depth - 1, 1) for a in term.args)
        return f"{left}{_COMPARED[term.op]}{right}", 0
    if term.op == "neg":
        return f"-{_in_brackets(term.args[0], depth - 1, own + 1)}", own
    if term.op == "square":
        return f"{_in_brackets(term.args[0], depth - 1, own + 1)}^2", own
    args = ", ".join(_text(a, depth - 1)[0] for a in term.args)
    return f"{_CALLED.get(term.op, term.op)}({args})", _ATOM


def _in_brackets(term: Term, depth: int, least: int) -> str:
    text, precedence = _text(term, depth)
    return text if precedence >= least else f"({text})"
