"""The real-number test: program and µGraph, or two programs, on structured inputs.

A finite field has no order, no domain of a function, and on random inputs no zero and no tie. Here
these are real: a division by zero or the log of -1 is undefined and makes everything computed from
it undefined, a selection takes one branch, a comparison of equal values is a tie. A µGraph must
have a value wherever the program has one, and the same value. Values are intervals
(mirage_py.verify.intervals.intervals): where rounding leaves the answer open, nothing is compared,
so a right µGraph is never refused.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mirage_py.errors import UnsupportedError, ValidationError
from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.verify.evaluate.difference import Mismatch
from mirage_py.verify.evaluate.trial import opaque_casts
from mirage_py.verify.evaluate.work import peak_elements
from mirage_py.verify.intervals.exact_meaning import ExactMeaning
from mirage_py.verify.intervals.exact_values import Exact
from mirage_py.verify.intervals.structured_inputs import (
    STYLES,
    exact_inputs,
    selects,
    with_undefined,
)

MAX_DRAWS = 160
MIN_DRAWS = 24
# Numbers of one array that all draws together may have.
_MAX_NUMBERS = 1 << 16
# Programs with a value of more elements than this are not compared: all draws take a gigabyte.
_MAX_ELEMENTS = 1 << 22
# A constant that was folded in float64 is off by less, and a field sees what is smaller.
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class RealEvidence:
    """``compared`` elements of ``draws`` draws had a known value on both sides."""

    draws: int
    compared: int
    mismatch: Mismatch | None = None


def real_test(program: Program, ugraph: UGraph, *, seed: int) -> RealEvidence:
    """Where the µGraph is undefined, or another number, where the program has a value.

    Both have the same small sizes, and tiles that are numbers.
    """
    draws = _draws(program)
    inputs, expected = _program_values(program, draws, seed)
    try:
        found = evaluate_ugraph(ugraph, inputs, ExactMeaning(opaque_casts(program)))
    except ValidationError as error:
        return RealEvidence(draws, 0, Mismatch("", (), str(error)))
    names = [(o.tensor.name, o.tensor.name) for o in program.outputs]
    return _compared(draws, expected, found, names, both_ways=False)


def real_comparison(
    left: Program, right: Program, names: list[tuple[str, str]], *, seed: int
) -> RealEvidence:
    """Two programs with the same inputs, and pairs of their outputs: defined for the same inputs,
    and equal there.

    Raises UnsupportedError where their values are too large for the fewest draws.
    """
    if max(map(peak_elements, (left, right))) > _MAX_ELEMENTS:
        raise UnsupportedError(
            "the programs are too large to compare on structured inputs",
            where=left.name,
            why="their sizes cannot shrink",
            repair="compare them at smaller sizes",
        )
    draws = min(_draws(left), _draws(right))
    inputs = exact_inputs([left, right], draws, seed)
    meaning = ExactMeaning(opaque_casts(left, right))
    ours = evaluate_program(left, inputs, meaning)
    theirs = evaluate_program(right, inputs, meaning)
    return _compared(draws, ours, theirs, names, both_ways=True)


# Families of one program are tested one after the other, most of them at the same small sizes.
@functools.lru_cache(maxsize=2)
def _program_values(
    program: Program, draws: int, seed: int
) -> tuple[Mapping[str, Exact], Mapping[str, Exact]]:
    """Inputs and outputs by name."""
    inputs = exact_inputs([program], draws, seed)
    if selects(program):
        inputs = with_undefined(program, inputs, range(len(STYLES), draws, 2), seed)
    return inputs, evaluate_program(program, inputs, ExactMeaning(opaque_casts(program)))


def may_have_draws(program: Program) -> bool:
    """Whether a program is small enough for more than the fewest draws."""
    return MIN_DRAWS * peak_elements(program) <= _MAX_NUMBERS


def _draws(program: Program) -> int:
    return max(MIN_DRAWS, min(MAX_DRAWS, _MAX_NUMBERS // max(1, peak_elements(program))))


def _compared(
    draws: int,
    expected: Mapping[str, Exact],
    found: Mapping[str, Exact],
    names: list[tuple[str, str]],
    *,
    both_ways: bool,
) -> RealEvidence:
    compared = 0
    for one, other in names:
        want, have = expected[one].interval, found[other].interval
        lost = want.known() & have.undefined()
        if both_ways:
            lost = lost | (have.known() & want.undefined())
        both = want.known() & have.known()
        with np.errstate(all="ignore"):
            apart = np.abs(want.mid - have.mid)
            size = np.maximum(np.abs(want.mid), np.abs(have.mid))
            differs = both & (apart > 4 * (want.rad + have.rad) + _TOLERANCE * size)
        compared += int(both.sum())
        for wrong, said in ((lost, "has no value"), (differs, "is another number")):
            places = np.argwhere(wrong)
            if len(places):
                *index, draw = (int(i) for i in places[0])
                where = f"{one}[{', '.join(map(str, index))}]"
                reason = f"{where} {said} on one side, on structured inputs (draw {draw})"
                return RealEvidence(draws, compared, Mismatch(one, tuple(index), reason))
    return RealEvidence(draws, compared)
