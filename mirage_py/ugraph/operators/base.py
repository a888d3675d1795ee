"""The operator class, and the registry of all operators.

An operator is defined once, as a row: its shape rule (through its kind), what it computes over
floats and over a finite field, what verification may take for granted about it, its text in each
language that kernels are written in, its names in PyTorch, and its cost. Whoever needs to know an
operator reads its row; ``named`` lists the operators that have a trait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.operators.registry import Registry

if TYPE_CHECKING:
    from mirage_py.ugraph.field.arithmetic import FieldOps
    from mirage_py.ugraph.field.values import FieldArray

FloatArray = NDArray[np.float64]
FloatMeaning = Callable[..., FloatArray]

# Kinds. The shape rule is a property of the kind:
#   leaf         dims come from the attribute (index expressions); no operands
#   elementwise  result dims = union of the operands' dims (broadcast by name)
#   reduce       result dims = operand's dims without those in the attribute
#   contract     sum over the attribute's dims of the product of two operands
#   state        loop-carried accumulators of a block graph; dims of the first operand
#   effect       writes an output; no result
LEAF, ELEMENTWISE, REDUCE, CONTRACT, STATE, EFFECT = (
    "leaf", "elementwise", "reduce", "contract", "state", "effect",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator.

    ``flops`` counts one element of the largest operand (for ``contract``: one product of the sum).
    ``over_floats(*operands)`` and ``over_field(ops, *operands)`` take arrays that broadcast.
    Reductions, contractions, leaves and state have their meaning in the interpreter, which knows
    the axes; for them both are None.
    """

    name: str
    kind: str
    arity: int
    flops: float
    symbol: str = ""
    over_floats: FloatMeaning | None = None
    over_field: Callable[[FieldOps, Any], FieldArray] | Callable[..., FieldArray] | None = None
    commutative: bool = False
    # Abstract expressions keep the operator under this name; casts are transparent.
    abstract: str = ""
    # One line for people.
    about: str = ""

    # What the field makes of it. Ordered: depends on the keyed random order. Keyed: a keyed random
    # function of what it is computed from. Exponential: goes through exp, and so has no q part.
    # Fresh: has a q part whatever its operands have.
    is_ordered: bool = False
    is_keyed: bool = False
    is_exponential: bool = False
    is_fresh: bool = False
    # What the error bound may know. A rational function is computed; ``defined(calls, *operands)``
    # says what the operator is through others, where ``calls.NAME`` applies one; anything else is a
    # function of which nothing is known but f(-x) = -f(x) (odd) or f(-x) = f(x) (even).
    is_rational: bool = False
    defined: Callable[..., Any] | None = None
    parity: str = ""

    # As a function of real numbers. No value for some numbers (partial), none at ``least`` or
    # below; rises throughout; else no steeper than ``steepest``, and the same again after
    # ``period``, if those are given.
    is_partial: bool = False
    least: float = -inf
    rises: bool = False
    steepest: float | None = None
    period: float | None = None
    # However small a change of its operand, the result may be another whole number; of one operand
    # it is one.
    jumps: bool = False
    # It rounds to a code: the site may be neither moved nor left out; reports count them.
    is_quantiser: bool = False
    # Of whole numbers, in two's complement.
    is_bitwise: bool = False
    # f(0) = 0, in kernels too; f(-infinity) = 0.
    keeps_zero: bool = False
    vanishes: bool = False

    # Rounding in float32: units of half a last place (0: moves or selects), relative to the result
    # or to the operand where that cancels; what it multiplies a reciprocal by, "one" or "operand",
    # which is lost where that is flushed to 0.
    ulps: float = 1.0
    rounds: str = "result"
    divides: str = ""
    # As good as straight within errors of a twelfth: "absolute", or "relative" to the operand.
    straight: str = ""
    # Its operand is an exponent, which may be too large.
    is_logit: bool = False
    # Where it may lose digits, for the numerical campaign.
    points: tuple[float, ...] = ()

    # Text, with {0} and {1} for the operands: PyTorch, then kernels, ``text`` where both languages
    # write it alike. Empty where it is not one expression: a back end has an emitter, or kernels
    # compute it by other operators, which ``lowered(calls, *operands)`` applies.
    torch: str = ""
    text: str = ""
    triton: str = ""
    c: str = ""
    # ptxas makes branches of its text in C.
    branches: bool = False
    lowered: Callable[..., Any] | None = None
    # torch's function of this name computes it on whole tensors, into ``out``.
    has_out: bool = False
    # ATen operators that are this and nothing else.
    aten: tuple[str, ...] = ()

    @property
    def abstract_name(self) -> str:
        """The operator's name in a Term."""
        return self.abstract or self.name


_REGISTRY = Registry[Operator]()
register, operator, all_operators = _REGISTRY.register, _REGISTRY.row, _REGISTRY.rows


def named(has: Callable[[Operator], bool]) -> tuple[str, ...]:
    """The names of the operators that have a trait."""
    return tuple(row.name for row in all_operators() if has(row))


class Calls:
    """What a definition is written in: ``calls.NAME(*operands)`` applies an operator of a domain,
    ``calls.constant(x)`` is a number.
    """

    def __init__(self, apply: Callable[..., Any], constant: Callable[[float], Any]) -> None:
        self._apply = apply
        self.constant = constant

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *operands: self._apply(name, None, operands)
