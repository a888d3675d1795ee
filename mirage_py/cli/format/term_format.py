"""Terms in the notation of math specs: sum[d](X[b, d] * W[d, n])."""

from __future__ import annotations

from mirage_py.axioms.terms.term import REDUCTIONS, Term

_SIGNS = {"add": " + ", "sub": " - ", "mul": " * ", "div": " / "}
_COMPARED = {"lt": " < ", "le": " <= ", "gt": " > ", "ge": " >= ", "eq": " == ", "ne": " != "}
# What binds tighter has the higher number.
_PRECEDENCE = {"add": 1, "sub": 1, "mul": 2, "div": 2, "neg": 3, "square": 4}
_ATOM = 5
_CALLED = {"maximum": "max", "minimum": "min"}


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
