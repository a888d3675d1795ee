"""Each elementwise operator as Triton text, one small function each.

Operands are names of float32 tiles (bool for masks and comparisons) that broadcast already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2

from mirage_py.codegen.operator_text import COMMON, Emitter, number
from mirage_py.errors import UnsupportedError

# Of series: those of expm1 below 1/2.
_TERMS = 9


def _tanh(x: str) -> str:
    # Through exp of a non-positive number; a series near 0, where 1 - exp cancels.
    far = f"(1.0 - tl.exp(-2.0 * tl.abs({x}))) / (1.0 + tl.exp(-2.0 * tl.abs({x})))"
    near = f"{x} * (1.0 - {x} * {x} * (0.3333333333333333 - 0.13333333333333333 * {x} * {x}))"
    return f"tl.where(tl.abs({x}) < 0.1, {near}, tl.where({x} < 0.0, -1.0, 1.0) * ({far}))"


def _log1p(x: str) -> str:
    # The rounding of 1 + x cancels in the quotient (Kahan); what is large needs no help.
    more = f"(1.0 + {x})"
    near = f"tl.where({more} == 1.0, {x}, tl.log({more}) * ({x} / ({more} - 1.0)))"
    return f"tl.where({x} > 1.0, tl.log({more}), {near})"


def _expm1(x: str) -> str:
    # A series near 0, where exp(x) - 1 cancels: what it leaves out is below 2^-27 of the result.
    series = "1.0"
    for n in range(_TERMS, 1, -1):
        series = f"1.0 + {x} * {1.0 / n!r} * ({series})"
    return f"tl.where(tl.abs({x}) < 0.5, {x} * ({series}), tl.exp({x}) - 1.0)"


def _pow(x: str, y: str) -> str:
    """By base-2 functions of the magnitude; the sign is that of IEEE 754: a negative base has real
    powers of whole exponents only, and any base to the power 0 is 1.
    """
    power = f"tl.exp2({y} * tl.log2(tl.abs({x})))"
    base, exponent = number(x), number(y)
    if exponent is not None:
        if not exponent.is_integer():
            return f"tl.exp2({y} * tl.log2({x}))"
        return f"tl.where({x} < 0.0, -{power}, {power})" if exponent % 2 else power
    if base is not None and base > 0.0:
        return f"tl.exp2({y} * {log2(base)!r})"
    odd = f"{y} - 2.0 * tl.floor({y} * 0.5) == 1.0"
    signed = f'tl.where({odd}, -{power}, tl.where(tl.floor({y}) == {y}, {power}, float("nan")))'
    return f"tl.where({y} == 0.0, 1.0, tl.where({x} < 0.0, {signed}, {power}))"


def _gelu_tanh(x: str) -> str:
    # 0.5 (1 + tanh z) = sigmoid(2 z), z = sqrt(2 / pi) (x + 0.044715 x^3)
    return f"{x} * tl.sigmoid(1.5957691216057308 * {x} * (1.0 + 0.044715 * {x} * {x}))"


_UNARY: Mapping[str, Emitter] = {
    "exp": lambda x: f"tl.exp({x})",
    "expm1": _expm1,
    "log": lambda x: f"tl.log({x})",
    "log1p": _log1p,
    "sqrt": lambda x: f"tl.sqrt({x})",
    "rsqrt": lambda x: f"tl.rsqrt({x})",
    "reciprocal_no_nan": lambda x: f"tl.where({x} == 0.0, 0.0, 1.0 / {x})",
    "abs": lambda x: f"tl.abs({x})",
    "relu": lambda x: f"tl.maximum({x}, 0.0, propagate_nan=tl.PropagateNan.ALL)",
    "sigmoid": lambda x: f"tl.sigmoid({x})",
    "silu": lambda x: f"{x} * tl.sigmoid({x})",
    "tanh": _tanh,
    "gelu": lambda x: f"0.5 * {x} * (1.0 + tl.erf({x} * 0.7071067811865476))",
    "gelu_tanh": _gelu_tanh,
    "erf": lambda x: f"tl.erf({x})",
}
_BINARY: Mapping[str, Emitter] = {
    "pow": _pow,
    "maximum": lambda x, y: f"tl.maximum({x}, {y}, propagate_nan=tl.PropagateNan.ALL)",
    "minimum": lambda x, y: f"tl.minimum({x}, {y}, propagate_nan=tl.PropagateNan.ALL)",
}
_TERNARY: Mapping[str, Emitter] = {"where": lambda c, x, y: f"tl.where({c}, {x}, {y})"}

ELEMENTWISE: Mapping[str, Emitter] = {**COMMON, **_UNARY, **_BINARY, **_TERNARY}


def elementwise(op: str, operands: list[str]) -> str:
    """The expression of ``op`` over operand names."""
    emit = ELEMENTWISE.get(op)
    if emit is None:
        raise UnsupportedError(
            f"the Triton back end has no emission for '{op}'",
            repair="add one in codegen/triton/expressions.py",
        )
    return emit(*operands)


def product(factors: Sequence[str], have: Sequence[Sequence[str]], axes: Sequence[str]) -> str:
    """The product of two factors over ``axes``; ``have`` says which of these each one has.

    Triton makes a ``tl.dot`` of ``x[:, :, None] * y[None, :, :]`` that is summed over its middle
    axis: in TF32 whatever the types, and wrong where that axis has less than 8 points (triton 3.6,
    sm_90). It does not recognise the product in the other order.
    """
    (x, y), (left, right) = factors, have
    if len(axes) > 2 and axes[-1] not in left and axes[0] not in right:
        x, y = y, x
    return f"{x} * {y}"
