"""Tidying of terms, as steps: what is left of shifts that are 0, and of tiles that are joined.

The checker reads a kernel as it is written: with 0 for each maximum that only shifts exponents, and
with a loop's sum as one over iterations of one over a tile. The proof search has neither. Steps
lead from both to the same term.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mirage_py.axioms.proof.steps import Step, term_at, with_term_at
from mirage_py.axioms.terms.term import REDUCTIONS, Term, apply, const

ZERO, ONE = const("0"), const("1")
MAX_STEPS = 2_000

# A law, its direction, what its variables and axes stand for, and what comes out.
_Rewrite = tuple[str, bool, dict[str, Term], dict[str, str], Term]


def tidied(term: Term, *, only_tiles: bool = False) -> tuple[Step, ...] | None:
    """The steps from a term to its tidy form, innermost first; None where they are too many."""
    steps: list[Step] = []
    # Shared subterms are looked through once.
    tidy: dict[Term, None] = {}
    while (at := _untidy(term, tidy, only_tiles)) is not None:
        found = _rewrite(term_at(term, at), only_tiles)
        assert found is not None
        law, forward, terms, axes, new = found
        after = with_term_at(term, at, new)
        steps.append(Step(law, forward, at, terms, axes, term, after))
        term = after
        if len(steps) > MAX_STEPS:
            return None
    return tuple(steps)


def backwards(steps: Iterable[Step]) -> tuple[Step, ...]:
    """The same way from its end."""
    return tuple(
        replace(s, forward=not s.forward, before=s.after, after=s.before)
        for s in reversed(tuple(steps))
    )


def _untidy(term: Term, tidy: dict[Term, None], only_tiles: bool) -> tuple[int, ...] | None:
    """The place of an innermost subterm that can be rewritten."""
    if term in tidy:
        return None
    for number, argument in enumerate(term.args):
        below = _untidy(argument, tidy, only_tiles)
        if below is not None:
            return (number, *below)
    if _rewrite(term, only_tiles) is not None:
        return ()
    tidy[term] = None
    return None


def _rewrite(term: Term, only_tiles: bool) -> _Rewrite | None:
    if term.op in REDUCTIONS:
        return _joined(term)
    if only_tiles or (ZERO not in term.args and ONE not in term.args):
        return None
    if len(term.args) == 2:
        return _of_pair(term.op, *term.args)
    if term.op == "exp" and term.args == (ZERO,):
        return "exponentials.of_zero", True, {}, {}, ONE
    if term.op == "neg" and term.args == (ZERO,):
        return "scalars.zero_minus", False, {"x": ZERO}, {}, ZERO - ZERO
    return None


def _joined(term: Term) -> _Rewrite | None:
    """op[d.l](op[d.t](x)) as op[d](x)."""
    (tile,) = term.args
    d, _, label = term.attr.partition(".l")
    if (tile.op, tile.attr) != (term.op, f"{d}.t{label}") or term.attr == d:
        return None
    x = tile.args[0]
    axes = {"i": d, "j": term.attr, "k": tile.attr}
    return f"tiles.{term.op}", False, {"x": x}, axes, Term(term.op, d, (x,))


def _of_pair(op: str, x: Term, y: Term) -> _Rewrite | None:
    """Sums with 0, differences with 0, products with 1, and products of 0 and a number."""
    if op == "sub" and y == ZERO:
        return "scalars.minus_zero", True, {"x": x}, {}, x
    if op == "sub" and x == ZERO:
        return "scalars.zero_minus", True, {"x": y}, {}, apply("neg", y)
    if op == "add" and y == ZERO:
        return "scalars.plus_zero", True, {"x": x}, {}, x
    if op == "mul" and y == ONE:
        return "scalars.times_one", True, {"x": x}, {}, x
    if op == "mul" and y == ZERO and x.op == "const":
        return "cancellation.product", True, {"x": x}, {}, ZERO
    if (op, x) in (("add", ZERO), ("mul", ONE)) or (op == "mul" and x == ZERO and y.op == "const"):
        family = "addition" if op == "add" else "multiplication"
        return f"{family}.commutes", True, {"x": x, "y": y}, {}, apply(op, y, x)
    return None
