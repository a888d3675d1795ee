"""Each elementwise operator as C text over floats (bool for masks and comparisons).

They mean what those of codegen/triton/expressions.py mean, NaN and signs of powers included.
"""

from __future__ import annotations

from collections.abc import Mapping

from mirage_py.codegen.text.operator_text import Emitter, emitters
from mirage_py.errors import UnsupportedError

ELEMENTWISE: Mapping[str, Emitter] = emitters("c")


def elementwise(op: str, operands: list[str]) -> str:
    """The expression of ``op`` over operand names."""
    emit = ELEMENTWISE.get(op)
    if emit is None:
        raise UnsupportedError(
            f"the CUDA back end has no emission for '{op}'",
            repair="give its row in mirage_py/ugraph/operators a text in C",
        )
    return emit(*operands)
