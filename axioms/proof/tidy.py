"""Tidying of terms, as steps: the two sums of a loop, over iterations and over a tile, are joined.

The checker reads a loop as it is written; the proof search has one sum over the dimension where
that is all a loop does. Steps lead from both to the same term.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from mirage_py.axioms.proof.steps import Step, term_at, with_term_at
from mirage_py.axioms.terms.term import REDUCTIONS, Term, reduce, subterms

MAX_STEPS = 2_000


def tidied(term: Term) -> tuple[Step, ...] | None:
    """The steps from a term to its tidy form, innermost first; None where they are too many."""
    steps: list[Step] = []
    # Shared subterms are looked through once.
    tidy: dict[Term, None] = {}
    while (at := _untidy(term, tidy)) is not None:
        found = term_at(term, at)
        new = _joined(found)
        assert new is not None
        axes = {"i": new.attr, "j": found.attr, "k": found.args[0].attr}
        after = with_term_at(term, at, new)
        steps.append(Step(f"tiles.{new.op}", False, at, {"x": new.args[0]}, axes, term, after))
        term = after
        if len(steps) > MAX_STEPS:
            return None
    return tuple(steps)


def parted(term: Term, dims: Sequence[str]) -> Term:
    """Each op[d](x) of some dimensions as op[d.l](op[d.t](x))."""
    new: dict[Term, Term] = {}
    for t in subterms(term):
        new[t] = Term(t.op, t.attr, tuple(new[a] for a in t.args))
        if t.op in REDUCTIONS and t.attr in dims:
            new[t] = reduce(t.op, (f"{t.attr}.l", f"{t.attr}.t"), new[t.args[0]])
    return new[term]


def backwards(steps: Iterable[Step]) -> tuple[Step, ...]:
    """The same way from its end."""
    return tuple(
        replace(s, forward=not s.forward, before=s.after, after=s.before)
        for s in reversed(tuple(steps))
    )


def _untidy(term: Term, tidy: dict[Term, None]) -> tuple[int, ...] | None:
    """The place of an innermost subterm that can be rewritten."""
    if term in tidy:
        return None
    for number, argument in enumerate(term.args):
        below = _untidy(argument, tidy)
        if below is not None:
            return (number, *below)
    if _joined(term) is not None:
        return ()
    tidy[term] = None
    return None


def _joined(term: Term) -> Term | None:
    """op[d.l](op[d.t](x)) as op[d](x)."""
    d, iterations, label = term.attr.partition(".l")
    if term.op not in REDUCTIONS or not iterations:
        return None
    (tile,) = term.args
    fits = (tile.op, tile.attr) == (term.op, f"{d}.t{label}")
    return Term(term.op, d, tile.args) if fits else None
