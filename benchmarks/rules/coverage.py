"""Coverage: rules of other systems that follow from the proved rules of the database."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.rules.foreign import Foreign
from mirage_py.axioms.substitutions.expression import Expr, nodes
from mirage_py.axioms.substitutions.inference import typed
from mirage_py.axioms.substitutions.rule import Rule
from mirage_py.errors import InputError
from mirage_py.search.substitutions.egraph import EGraph, Rewrite
from mirage_py.search.substitutions.generate import rewrites_of
from mirage_py.search.substitutions.normal_forms import NormalForms

SAME, FORM = "the same graph", "one normal form"
REACHED, MET = "reached from the left", "both sides meet"
OTHER, SHAPELESS, MISSING = "another operator", "no shapes fit", "not derived"
COVERED = (SAME, FORM, REACHED, MET)
_ROUNDS, _MAX_NODES = 4, 500


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a rule."""

    name: str
    kind: str
    detail: str = ""


def answer(foreign: Foreign, rules: Sequence[Rule]) -> Answer:
    """Whether the rules give both sides one normal form, or saturation by them, of the left side
    alone or of both, makes the sides equal.
    """
    if foreign.other:
        return Answer(foreign.name, OTHER, foreign.other)
    half = len(foreign.left)
    try:
        sides = typed((*foreign.left, *foreign.right))
    except InputError:
        return Answer(foreign.name, SHAPELESS, _text(foreign))
    left, right = sides[:half], sides[half:]
    if left == right:
        return Answer(foreign.name, SAME)
    rank = max(len(x.type) for x in nodes(*sides))
    rewrites, forms = _known(tuple(rules), rank)
    if all(forms.are_equal(a, b) for a, b in zip(left, right, strict=True)):
        return Answer(foreign.name, FORM)
    if _meet(left, right, rewrites, both=False):
        return Answer(foreign.name, REACHED)
    if _meet(left, right, rewrites, both=True):
        return Answer(foreign.name, MET)
    return Answer(foreign.name, MISSING, _text(foreign))


@functools.cache
def _known(rules: tuple[Rule, ...], rank: int) -> tuple[list[Rewrite], NormalForms]:
    rewrites = rewrites_of(rules, (rank,))
    return rewrites, NormalForms(rewrites, rank)


def _meet(
    left: Sequence[Expr], right: Sequence[Expr], rewrites: Sequence[Rewrite], *, both: bool
) -> bool:
    graph = EGraph()
    for x in (*left, *(right if both else (i for i in nodes(*right) if i.op == "input"))):
        graph.add_expr(x)
    graph.rebuild()
    for _ in range(_ROUNDS):
        if all(graph.are_equal(a, b) for a, b in zip(left, right, strict=True)):
            return True
        if not graph.step(rewrites, _MAX_NODES) or len(graph.table) > _MAX_NODES:
            break
    return all(graph.are_equal(a, b) for a, b in zip(left, right, strict=True))


def _text(foreign: Foreign) -> str:
    sides = ("; ".join(map(_written, side)) for side in (foreign.left, foreign.right))
    return " = ".join(sides)


def _written(x: Expr) -> str:
    if x.op == "input":
        return x.name.removeprefix("input_")
    numbers = [str(a) for a in x.attrs if isinstance(a, int)]
    return f"{x.op}({', '.join([*map(_written, x.args), *numbers])})"
