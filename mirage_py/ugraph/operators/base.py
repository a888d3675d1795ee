"""The operator class, and the registry of all operators.

An operator is defined once: its shape rule (through its kind), what it computes over floats and
over a finite field, its name in abstract expressions, and its cost. Adding one is a row in a file
of this folder, an emission function per back end and a test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage_py.errors import UnsupportedError

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

    @property
    def abstract_name(self) -> str:
        """The operator's name in a Term."""
        return self.abstract or self.name


_REGISTRY: dict[str, Operator] = {}


def register(operator: Operator) -> Operator:
    """Add an operator; a second one of the same name is a bug of the caller."""
    if operator.name in _REGISTRY:
        raise ValueError(f"operator '{operator.name}' is registered twice")
    _REGISTRY[operator.name] = operator
    return operator


def operator(name: str) -> Operator:
    """The operator called ``name``, or UnsupportedError."""
    found = _REGISTRY.get(name)
    if found is None:
        raise UnsupportedError(
            f"unknown operator '{name}'", repair=f"use one of {', '.join(_REGISTRY)}"
        )
    return found


def all_operators() -> tuple[Operator, ...]:
    """Every registered operator, in the order of registration."""
    return tuple(_REGISTRY.values())
