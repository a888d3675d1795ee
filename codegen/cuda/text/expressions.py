"""Each elementwise operator as C text over floats (bool for masks and comparisons).

They mean what those of codegen/triton/expressions.py mean, NaN and signs of powers included.
"""

from __future__ import annotations

from collections.abc import Mapping

from mirage_py.codegen.text.operator_text import COMMON, Emitter
from mirage_py.errors import UnsupportedError


def _sigmoid(x: str) -> str:
    return f"1.0f / (1.0f + expf(-{x}))"


def _gelu_tanh(x: str) -> str:
    # 0.5 (1 + tanh z) = sigmoid(2 z), z = sqrt(2 / pi) (x + 0.044715 x^3)
    z = f"1.5957691216057308f * {x} * (1.0f + 0.044715f * {x} * {x})"
    return f"{x} / (1.0f + expf(-({z})))"


_UNARY: Mapping[str, Emitter] = {
    "exp": lambda x: f"expf({x})",
    "expm1": lambda x: f"expm1f({x})",
    "log": lambda x: f"logf({x})",
    "log1p": lambda x: f"log1pf({x})",
    "sqrt": lambda x: f"sqrtf({x})",
    "rsqrt": lambda x: f"rsqrt_fast({x})",
    "reciprocal_no_nan": lambda x: f"{x} == 0.0f ? 0.0f : 1.0f / {x}",
    "abs": lambda x: f"fabsf({x})",
    "relu": lambda x: f"max_nan({x}, 0.0f)",
    "sigmoid": _sigmoid,
    "silu": lambda x: f"{x} / (1.0f + expf(-{x}))",
    "tanh": lambda x: f"tanhf({x})",
    "gelu": lambda x: f"0.5f * {x} * (1.0f + erff({x} * 0.70710678f))",
    "gelu_tanh": _gelu_tanh,
    "erf": lambda x: f"erff({x})",
}
_BINARY: Mapping[str, Emitter] = {
    "pow": lambda x, y: f"powf({x}, {y})",
    "maximum": lambda x, y: f"max_nan({x}, {y})",
    "minimum": lambda x, y: f"-max_nan(-{x}, -{y})",
}
_TERNARY: Mapping[str, Emitter] = {"where": lambda c, x, y: f"{c} ? {x} : {y}"}

ELEMENTWISE: Mapping[str, Emitter] = {**COMMON, **_UNARY, **_BINARY, **_TERNARY}


def elementwise(op: str, operands: list[str]) -> str:
    """The expression of ``op`` over operand names."""
    emit = ELEMENTWISE.get(op)
    if emit is None:
        raise UnsupportedError(
            f"the CUDA back end has no emission for '{op}'",
            repair="add one in codegen/cuda/text/expressions.py",
        )
    return emit(*operands)
