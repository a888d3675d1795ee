"""Reasons: why there is less than there could be. A reason is a code with data, made where the fact
arises; its sentence is made here, and so is the code of a sentence that a report or journal holds.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple


class Code(StrEnum):
    """What happened. The value is the sentence, with ``{}`` for each item of the data."""

    # Why a search found less than there could be.
    POOL_OUTGREW = "the pool outgrew {} tensors ({})"
    BOUND_ON_NODES = "saturation stopped at the bound on nodes ({})"
    BOUND_ON_ROUNDS = "saturation stopped at the bound on rounds ({})"
    EXTRACTION_CUT = "extraction stopped at its bound ({})"
    OUT_OF_TIME = "stopped before the space was gone through"
    REFUTED = "refuted ({}): {}"
    NO_CONFIGURATION = "no configuration reaches all outputs"
    # Why a program cannot be searched.
    DIVIDES_BY_ZERO = "{} divides by zero in each of {} draws"
    NO_FIELD_VALUE = "the constant {} has no value in a finite field{}"
    NO_FIELD_OPERATOR = "'{}' is not an elementwise operator over a field{}"
    BLOCK_OPERATOR = "'{}' in a program{}"
    TOO_MANY_AXES = "a program of {} axes{}"
    # The rule that turned a tensor away.
    GRID = "grid: a block sees only its own part of the dimension"
    PURE = "intermediate: no reduction in it, so its reader computes it"
    IMAGE = "intermediate: a function of one stored tensor, so its reader computes it"
    MATERIALISATION = "materialisation: the product is only ever contracted"
    MAX_LOOPS = "max_loops: more than {} loops in a row"
    MAX_OPERATORS = "max_operators: more than {} operators"
    REDUCED_TILE = "phase: a tile is reduced before it is accumulated"
    TWO_LOOPS = "phase: tensors of loops over different dimensions"
    WHOLE_AND_TILE = "phase: the whole of a dimension cannot meet one tile of it"
    ROUNDING = "rounding: another way to the same value keeps digits that this one loses"
    NO_TILE = "shape: no tile of the dimension to reduce"
    ZERO_DIVISION = "zero division: a divisor is zero in every draw"
    # The words of an error, or a sentence of a version with other codes.
    OTHER = "{}"


class Reason(NamedTuple):
    """Why; ``where`` is a part of the program, or empty. ``str`` gives the sentence."""

    code: Code
    data: tuple[str, ...] = ()
    where: str = ""

    def __str__(self) -> str:
        sentence = self.code.value.format(*self.data)
        return f"{self.where}: {sentence}" if self.where else sentence


def reason(code: Code, *data: object) -> Reason:
    """A reason with its data as they are printed."""
    return Reason(code, tuple(map(str, data)))


@lru_cache(maxsize=1024)
def read_reason(sentence: str) -> Reason:
    """The reason that a stored sentence tells: ``str`` gives the sentence back."""
    return next(found for code in Code if (found := worded(code, sentence)) is not None)


def worded(code: Code, sentence: str) -> Reason | None:
    """The reason of this code that has the sentence, if there is one."""
    found = _form(code).fullmatch(sentence)
    return Reason(code, found.groups()[1:], found[1] or "") if found else None


@lru_cache(maxsize=len(Code))
def _form(code: Code) -> re.Pattern[str]:
    data = "(.*?)".join(map(re.escape, code.value.split("{}")))
    return re.compile(rf"(?:([^\n]*?): )??{data}", re.DOTALL)
