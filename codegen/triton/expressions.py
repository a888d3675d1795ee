"""Elementwise operators as Triton text, one small function each.

Operands are names of float32 tiles (bool for masks and comparisons) that broadcast already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import fmod, log2

import numpy as np

from mirage_py.codegen.text.operator_text import Emitter, emitters, number
from mirage_py.errors import UnsupportedError

# Terms of the series of expm1 below log(2) / 2: what it leaves out is below 2^-28 of the result.
_TERMS = 8
# Of tanh(x) / x - 1 in powers of x^2 below 0.55, within 4e-9.
_TANH = (-0.33333332, 0.13333118, -0.053910065, 0.02131274, -0.0066157466)

# Bits of the quotient that a step of a remainder takes off: its product is exact in float64;
# and exponents of all steps: quotients of float32 are below 2^277.
_QUOTIENT_BITS = 28
_QUOTIENT_STEPS = range(252, -1, -_QUOTIENT_BITS)
_ABOVE_FLOAT32 = 2.0**128
# Of atan(x) / x - 1 in powers of x^2 below tan(pi / 8).
_ATAN = (-0.333329491539, 0.199777106478, -0.138776856032, 0.0805374449538)


def _whole_powers(x: str) -> tuple[str, str]:
    """k and r with x = k log(2) + r, where r is small: x / log(2) alone is off by as much as it is
    large. log(2) comes in two parts, of which the first has so few bits that k times it is exact.
    """
    k = f"tl.minimum(tl.maximum(tl.floor({x} * 1.4426950408889634 + 0.5), -150.0), 127.0)"
    return k, f"({x} - {k} * 0.693359375 + {k} * 0.00021219444005469057)"


def _power(x: str, raised: str = "") -> str:
    """exp(x), times 2 to the power ``raised``. x / log(2) is off by as much as x is large: the
    power of what that leaves is about 1 plus it. Infinite operands leave nothing.
    """
    # As an fma no addition is contracted with it, which would round elsewhere.
    exponent = f"tl.fma({x}, 1.4426950408889634, 0.0)"
    # 1 / log(2) has two parts as well.
    rest = f"tl.fma({x}, 1.4426950408889634, -{exponent}) + {x} * 1.925963033500e-08"
    bounded = f"tl.minimum(tl.maximum({rest}, -1e-4), 1e-4)"
    return f"tl.exp2({exponent}{raised}) * (1.0 + {bounded} * 0.6931471805599453)"


def _exp_to_the_end(x: str) -> str:
    # tl.exp2 has 0 for what is below the normal numbers. A product may be there: what is computed
    # of an exponential, such as its product with a large number, still needs it.
    low = f"{x} < -60.0"
    raised = _power(x, f" + tl.where({low}, 64.0, 0.0)")
    return f"{raised} * tl.where({low}, {2.0**-64!r}, 1.0)"


def _rsqrt(x: str) -> str:
    # The hardware's takes what is below the normal numbers for 0.
    low = f"{x} < 1e-30"
    root = f"tl.rsqrt({x} * tl.where({low}, {2.0**60!r}, 1.0))"
    return f"{root} * tl.where({low}, {2.0**30!r}, 1.0)"


def _erf(x: str) -> str:
    # Its polynomial flushes its terms before they add up to x.
    return f"tl.where(tl.abs({x}) < 1e-4, {x} * 1.1283791670955126, tl.erf({x}))"


def _expm1(x: str) -> str:
    # By a series of the rest, where exp(x) - 1 cancels. Below -20 it is -1, above 80 it is exp(x).
    k, rest = _whole_powers(x)
    series = "1.0"
    for n in range(_TERMS, 1, -1):
        series = f"1.0 + {rest} * {1.0 / n!r} * ({series})"
    near = f"tl.exp2({k}) * {rest} * ({series}) + (tl.exp2({k}) - 1.0)"
    return f"tl.where({x} < -20.0, -1.0, tl.where({x} > 80.0, {_power(x)}, {near}))"


def _log1p(x: str) -> str:
    # What 1 + x loses of x is added again, over 1 + x.
    more = f"(1.0 + {x})"
    near = f"tl.log({more}) + ({x} - ({more} - 1.0)) / {more}"
    return f"tl.where(({x} > 1.0) | ({more} == 0.0), tl.log({more}), {near})"


def _series(x: str, terms: Sequence[float]) -> str:
    """The sum of x^n times the nth of the terms, by Horner's rule."""
    series = "0.0"
    for term in reversed(terms):
        series = f"{x} * ({term!r} + {series})"
    return series


def _atan(x: str) -> str:
    # Of the distance to the nearest of 0, pi / 4 and pi / 2, by the series of Cephes.
    size = f"tl.abs({x})"
    far, middle = f"{size} > 2.414213562373095", f"{size} > 0.4142135623730950"
    steep = f"-1.0 / tl.maximum({size}, 1.0)"
    near = f"tl.where({far}, {steep}, tl.where({middle}, ({size} - 1.0) / ({size} + 1.0), {size}))"
    base = f"tl.where({far}, 1.5707963267948966, tl.where({middle}, 0.7853981633974483, 0.0))"
    series = _series(f"({near} * {near})", _ATAN)
    value = f"({base} + ({near} + {near} * ({series})))"
    return f"tl.where({x} < 0.0, -{value}, {value})"


def _tanh(x: str) -> str:
    # Through exp of a non-positive number; a series near 0, where 1 - exp cancels.
    far = f"(1.0 - tl.exp(-2.0 * tl.abs({x}))) / (1.0 + tl.exp(-2.0 * tl.abs({x})))"
    series = _series(f"{x} * {x}", _TANH)
    signed = f"tl.where({x} < 0.0, -1.0, 1.0) * ({far})"
    return f"tl.where(tl.abs({x}) < 0.55, {x} + {x} * ({series}), {signed})"


def _pow(x: str, y: str) -> str:
    """By base-2 functions of the magnitude, in float64: by what an exponent is off, the power is so
    relatively. The sign is that of IEEE 754: a negative base has real powers of whole exponents
    only, and any base to the power 0 is 1.
    """
    wide = f"tl.cast({y}, tl.float64)"
    logarithm = f"tl.log2(tl.cast(tl.abs({x}), tl.float64))"
    power = f"tl.cast(tl.exp2({wide} * {logarithm}), tl.float32)"
    base, exponent = number(x), number(y)
    if exponent is not None:
        power = f"tl.cast(tl.exp2({y} * {logarithm}), tl.float32)"
        if not exponent.is_integer():
            return f'tl.where({x} < 0.0, float("nan"), {power})'
        return f"tl.where({x} < 0.0, -{power}, {power})" if exponent % 2 else power
    if base is not None and base > 0.0:
        return f"tl.cast(tl.exp2({wide} * {log2(base)!r}), tl.float32)"
    odd = f"{y} - 2.0 * tl.floor({y} * 0.5) == 1.0"
    signed = f'tl.where({odd}, -{power}, tl.where(tl.floor({y}) == {y}, {power}, float("nan")))'
    return f"tl.where({y} == 0.0, 1.0, tl.where({x} < 0.0, {signed}, {power}))"


def _sigmoid(x: str) -> str:
    return f"1.0 / (1.0 + {_power(f'(-{x})')})"


# What is more than one expression.
_OWN: Mapping[str, Emitter] = {
    "exp": _exp_to_the_end,
    "expm1": _expm1,
    "log1p": _log1p,
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
    "silu": lambda x: f"{x} * ({_sigmoid(x)})",
    "tanh": _tanh,
    "erf": _erf,
    "atan": _atan,
    "pow": _pow,
}
ELEMENTWISE: Mapping[str, Emitter] = {**emitters("triton"), **_OWN}


def remainder(name: str, x: str, y: str) -> tuple[list[str], str]:
    """fmod(x, y): statements that assign ``name``, and the expression after them. A long division,
    exact as that of C: ``x % y`` of Triton is x - y * trunc(x / y), rounded three times.
    """
    dividend, modulus = number(x), number(y)
    if dividend is not None and modulus is not None:
        return [], repr(fmod(dividend, modulus)) if modulus else 'float("nan")'
    size, divisor = _wide_size(x), _wide_size(y)
    lines = [f"{name} = {size}"]
    for exponent in _QUOTIENT_STEPS:
        if modulus and abs(modulus) * 2.0**exponent > _ABOVE_FLOAT32:
            continue
        step = f"({divisor} * {2.0**exponent!r})"
        lines.append(f"{name} = {name} - tl.floor({name} / {step}) * {step}")
    left = f"tl.cast({name}, tl.float32)"
    signed = f"tl.where({x} < 0.0, -{left}, {left})"
    if dividend is not None:
        signed = f"-{left}" if dividend < 0.0 else left
    if modulus is None:  # nothing is taken off by an infinite one
        signed = f'tl.where(tl.abs({y}) == float("inf"), {x} + 0.0 * {x}, {signed})'
    return lines, signed


def _wide_size(x: str) -> str:
    """The magnitude in float64."""
    literal = number(x)
    if literal is not None:
        return repr(abs(float(np.float32(literal))))
    return f"tl.abs(tl.cast({x}, tl.float64))"


# What is more than one statement: they assign the name that is given.
STEPS: Mapping[str, Callable[[str, str, str], tuple[list[str], str]]] = {"fmod": remainder}


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
    sm_90). It does so with further axes too, and then finds fault with the ranks. It does not
    recognise the product in the other order.
    """
    (x, y), (left, right) = factors, have
    if any(axis not in left for axis in axes[2:]) and axes[0] not in right:
        x, y = y, x
    return f"{x} * {y}"
