"""Each elementwise operator as C text over floats (bool for masks and comparisons).

They mean what those of codegen/triton/expressions.py mean, NaN and signs of powers included.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log2

from mirage_py.codegen.cuda.c_text import float_text
from mirage_py.codegen.operator_text import COMMON, Emitter, number
from mirage_py.errors import UnsupportedError

_NAN = float_text(float("nan"))


def _sigmoid(x: str) -> str:
    return f"1.0f / (1.0f + exp_fast(-{x}))"


def _tanh(x: str) -> str:
    # Through exp of a non-positive number; a series near 0, where 1 - exp cancels.
    exp = f"exp_fast(-2.0f * fabsf({x}))"
    near = f"{x} * (1.0f - {x} * {x} * (0.33333333f - 0.13333333f * {x} * {x}))"
    return f"fabsf({x}) < 0.1f ? {near} : copysignf((1.0f - {exp}) / (1.0f + {exp}), {x})"


def _pow(x: str, y: str) -> str:
    """By base-2 functions of the magnitude; a negative base has real powers of whole exponents
    only, and any base to the power 0 is 1.
    """
    power = f"exp2f({y} * log2f(fabsf({x})))"
    base, exponent = number(x), number(y)
    if exponent is not None:
        if not exponent.is_integer():
            return f"exp2f({y} * log2f({x}))"
        return f"{x} < 0.0f ? -{power} : {power}" if exponent % 2 else power
    if base is not None and base > 0.0:
        return f"exp2f({y} * {float_text(log2(base))})"
    odd = f"{y} - 2.0f * floorf({y} * 0.5f) == 1.0f"
    signed = f"({odd} ? -{power} : (floorf({y}) == {y} ? {power} : {_NAN}))"
    return f"{y} == 0.0f ? 1.0f : ({x} < 0.0f ? {signed} : {power})"


def _gelu_tanh(x: str) -> str:
    # 0.5 (1 + tanh z) = sigmoid(2 z), z = sqrt(2 / pi) (x + 0.044715 x^3)
    z = f"1.5957691216057308f * {x} * (1.0f + 0.044715f * {x} * {x})"
    return f"{x} / (1.0f + exp_fast(-({z})))"


_UNARY: Mapping[str, Emitter] = {
    "exp": lambda x: f"exp_fast({x})",
    "expm1": lambda x: f"expm1f({x})",
    "log": lambda x: f"logf({x})",
    "log1p": lambda x: f"log1pf({x})",
    "sqrt": lambda x: f"sqrtf({x})",
    "rsqrt": lambda x: f"rsqrt_fast({x})",
    "reciprocal_no_nan": lambda x: f"{x} == 0.0f ? 0.0f : 1.0f / {x}",
    "abs": lambda x: f"fabsf({x})",
    "relu": lambda x: f"max_nan({x}, 0.0f)",
    "sigmoid": _sigmoid,
    "silu": lambda x: f"{x} / (1.0f + exp_fast(-{x}))",
    "tanh": _tanh,
    "gelu": lambda x: f"0.5f * {x} * (1.0f + erff({x} * 0.70710678f))",
    "gelu_tanh": _gelu_tanh,
    "erf": lambda x: f"erff({x})",
}
_BINARY: Mapping[str, Emitter] = {
    "pow": _pow,
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
            repair="add one in codegen/cuda/expressions.py",
        )
    return emit(*operands)
