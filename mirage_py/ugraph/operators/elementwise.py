"""Elementwise operators: one row each, broadcast by dimension name."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from mirage_py.ugraph.operators.base import ELEMENTWISE, FloatArray, Operator, register

_SQRT_2_OVER_PI = 0.7978845608028654
_GELU_CUBIC = 0.044715


def _sigmoid(x: FloatArray) -> FloatArray:
    # exp of a non-positive number on both branches: no overflow at either end.
    small = np.exp(-np.abs(x))
    return _as_float(np.where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small)))


def _erf(x: FloatArray) -> FloatArray:
    """Error function to float64 rounding, by the standard library (NumPy has none)."""
    from math import erf

    return _as_float(np.vectorize(erf, otypes=[np.float64])(x))


def _gelu(x: FloatArray) -> FloatArray:
    """``x / 2 (1 + erf(x / sqrt(2)))``, where the sum cancels by the complement."""
    from math import erfc

    return _as_float(0.5 * x * np.vectorize(erfc, otypes=[np.float64])(-x / np.sqrt(2.0)))


def _gelu_tanh(x: FloatArray) -> FloatArray:
    # 0.5 (1 + tanh z) = sigmoid(2 z), which does not cancel.
    return _as_float(x * _sigmoid(2.0 * np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def _reciprocal_no_nan(x: FloatArray) -> FloatArray:
    """1 / x, and 0 where x is 0 (the name is TensorFlow's)."""
    return _as_float(np.where(x == 0.0, 0.0, 1.0 / np.where(x == 0.0, 1.0, x)))


def _as_float(x: object) -> FloatArray:
    return np.asarray(x, dtype=np.float64)


def _as_whole(x: FloatArray) -> Any:
    return np.nan_to_num(np.asarray(x), posinf=0.0, neginf=0.0).astype(np.int64)


def _e4m3(x: FloatArray) -> FloatArray:
    """To 4 significant bits, 2^-9 at the least, by the place of the leading one."""
    _, exponents = np.frexp(x)
    place = np.maximum(exponents, -5) - 4
    return _as_float(np.clip(np.ldexp(np.rint(np.ldexp(x, -place)), place), -448.0, 448.0))


# What functions are through others, over any domain of numbers.


def _sigmoid_by_exp(f: Any, x: Any) -> Any:
    return f.div(f.constant(1), f.add(f.constant(1), f.exp(f.neg(x))))


def _silu_by_exp(f: Any, x: Any) -> Any:
    return f.mul(x, _sigmoid_by_exp(f, x))


def _tanh_by_exp(f: Any, x: Any) -> Any:
    """``2 sigmoid(2 x) - 1``."""
    two = f.constant(2)
    return f.sub(f.mul(two, _sigmoid_by_exp(f, f.mul(two, x))), f.constant(1))


def _log1p_by_log(f: Any, x: Any) -> Any:
    return f.log(f.add(f.constant(1), x))


def _expm1_by_exp(f: Any, x: Any) -> Any:
    return f.sub(f.exp(x), f.constant(1))


def _gelu_by(f: Any, x: Any, reached: Any) -> Any:
    """``x / 2 (1 + reached)``."""
    half = f.constant(0.5)
    return f.mul(f.mul(half, x), f.add(f.constant(1), reached))


def _gelu_by_erf(f: Any, x: Any) -> Any:
    """``x / 2 (1 + erf(x / sqrt(2)))``, so gelu(x) - gelu(-x) = x."""
    return _gelu_by(f, x, f.odd("erf", f.mul(x, f.sqrt(f.constant(0.5)))))


def _gelu_by_tanh(f: Any, x: Any) -> Any:
    """``x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))``."""
    bent = f.add(x, f.mul(f.constant(_GELU_CUBIC), f.mul(x, f.square(x))))
    return _gelu_by(f, x, _tanh_by_exp(f, f.mul(f.constant(_SQRT_2_OVER_PI), bent)))


def _ceil_by_floor(f: Any, x: Any) -> Any:
    return f.neg(f.floor(f.neg(x)))


def _exp2_by_exp(f: Any, x: Any) -> Any:
    return f.exp(f.mul(x, f.log(f.constant(2))))


def _truth_of(name: str) -> Any:
    """The field meaning of a question to which nothing is known: a random truth value."""
    return lambda f, x: f.lt(f.keyed(name, x), f.constant(0))


def _mish_by_exp(f: Any, x: Any) -> Any:
    """``x n / (n + 2)``, where n = e (e + 2) and e = exp(x)."""
    e = f.exp(x)
    n = f.mul(e, f.add(e, f.constant(2)))
    return f.mul(x, f.div(n, f.add(n, f.constant(2))))


def _mish_in_range(f: Any, x: Any) -> Any:
    """The same through e = exp(-|x|): for positive x, numerator and divisor over exp(2 x)."""
    e, zero, one, two = f.exp(f.neg(f.abs(x))), f.constant(0), f.constant(1), f.constant(2)
    rises = f.gt(x, zero)
    n = f.where(rises, f.add(one, f.mul(two, e)), f.mul(e, f.add(e, two)))
    more = f.where(rises, f.mul(two, f.square(e)), two)
    return f.mul(x, f.div(n, f.add(n, more)))


def _hardswish(f: Any, x: Any) -> Any:
    raised = f.maximum(f.add(x, f.constant(3)), f.constant(0))
    return f.mul(x, f.mul(f.minimum(raised, f.constant(6)), f.constant(Fraction(1, 6))))


def _row(name: str, arity: int, flops: float, over_floats: Any, **traits: Any) -> Operator:
    """Operators of a definition have their field meaning from it, those of a parity are random
    functions with it, for others the field has a method.
    """
    parity = traits.get("parity")
    if parity:
        traits |= {"is_keyed": True, "is_fresh": True}

    def of_field(f: Any, *operands: Any) -> Any:
        return getattr(f, parity)(name, *operands) if parity else getattr(f, name)(*operands)

    meaning = traits.pop("over_field", None) or traits.get("defined") or of_field
    return register(
        Operator(
            name, ELEMENTWISE, arity, flops, over_floats=over_floats, over_field=meaning, **traits
        )
    )


_row(
    "neg", 1, 1, lambda x: -x, is_rational=True, ulps=0, keeps_zero=True, torch="-{}",
    text="-{0}", has_out=True,
)  # fmt: skip
_row(
    "exp", 1, 4, np.exp, is_exponential=True, rises=True, ulps=4, vanishes=True, is_logit=True,
    straight="absolute", torch="torch.exp({})", c="expf({0})", has_out=True,
)  # fmt: skip
_row(
    "expm1", 1, 6, np.expm1, defined=_expm1_by_exp, is_exponential=True, rises=True, ulps=4,
    keeps_zero=True, is_logit=True, straight="absolute", torch="torch.expm1({})", c="expm1f({0})",
    has_out=True,
)  # fmt: skip
_row(
    "log", 1, 4, np.log, about="The natural logarithm.", is_keyed=True, is_fresh=True,
    is_partial=True, least=0.0, rises=True, ulps=4, straight="relative", torch="torch.log({})",
    triton="tl.log({0})", c="logf({0})", has_out=True, aten=("log.default",),
)  # fmt: skip
_row(
    "log2", 1, 4, np.log2, about="The logarithm to base 2.", is_keyed=True, is_fresh=True,
    defined=lambda f, x: f.div(f.log(x), f.log(f.constant(2))), is_partial=True, least=0.0,
    rises=True, ulps=4, straight="relative", torch="torch.log2({})", triton="tl.log2({0})",
    c="log2f({0})", has_out=True, aten=("log2.default",),
)  # fmt: skip
_row(
    "log10", 1, 4, np.log10, about="The logarithm to base 10.", is_keyed=True, is_fresh=True,
    defined=lambda f, x: f.div(f.log(x), f.log(f.constant(10))), is_partial=True, least=0.0,
    rises=True, ulps=4, straight="relative", torch="torch.log10({})",
    triton="tl.log2({0}) * 0.3010299956639812", c="log10f({0})", has_out=True,
    aten=("log10.default",),
)  # fmt: skip
_row(
    "exp2", 1, 4, np.exp2, about="2 to the x.", defined=_exp2_by_exp, is_keyed=True,
    is_exponential=True, rises=True, ulps=4, vanishes=True, is_logit=True, straight="absolute",
    torch="torch.exp2({})", triton="tl.exp2({0})", c="exp2f({0})", has_out=True,
    aten=("exp2.default",),
)  # fmt: skip
_row(
    "log1p", 1, 6, np.log1p, about="log(1 + x).", defined=_log1p_by_log, is_keyed=True,
    is_fresh=True, is_partial=True, least=-1.0, ulps=4, keeps_zero=True,
    torch="torch.log1p({})", c="log1pf({0})", has_out=True, aten=("log1p.default",), branches=True,
)  # fmt: skip
_row(
    "sqrt", 1, 4, np.sqrt, about="The square root.", is_partial=True, least=0.0, ulps=4,
    keeps_zero=True, straight="relative", torch="torch.sqrt({})", triton="tl.sqrt_rn({0})",
    c="sqrtf({0})", has_out=True, aten=("sqrt.default",), branches=True,
)  # fmt: skip
_row(
    "rsqrt", 1, 4, lambda x: 1.0 / np.sqrt(x), about="1 / sqrt(x).",
    over_field=lambda f, x: f.rsqrt(x), defined=lambda f, x: f.div(f.constant(1), f.sqrt(x)),
    is_partial=True, least=0.0, ulps=4, straight="relative", torch="torch.rsqrt({})",
    c="rsqrt_fast({0})", has_out=True, aten=("rsqrt.default",),
)  # fmt: skip
_row(
    "reciprocal_no_nan", 1, 5, _reciprocal_no_nan, is_rational=True, ulps=4, keeps_zero=True,
    divides="one", straight="relative", text="",
    torch="torch.where({0} == 0, 0.0, torch.reciprocal({0}))",
    triton="tl.where({0} == 0.0, 0.0, 1.0 / {0})", c="{0} == 0.0f ? 0.0f : 1.0f / {0}",
    branches=True,
)  # fmt: skip
_row(
    "square", 1, 1, lambda x: x * x, about="x * x.", is_rational=True, keeps_zero=True,
    straight="relative", torch="torch.square({})", text="{0} * {0}", has_out=True,
    aten=("square.default",),
)  # fmt: skip
_row(
    "abs", 1, 1, np.abs, about="|x|.", is_ordered=True, ulps=0, keeps_zero=True,
    torch="torch.abs({})", triton="tl.abs({0})", c="fabsf({0})", has_out=True,
    aten=("abs.default",),
)  # fmt: skip
_row(
    "erf", 1, 16, _erf, about="The error function.", parity="odd", rises=True, ulps=4,
    keeps_zero=True, straight="absolute", torch="torch.erf({})", c="erff({0})", has_out=True,
    aten=("erf.default",),
)  # fmt: skip
_row(
    "relu", 1, 1, lambda x: np.maximum(x, 0.0), about="max(x, 0).", is_ordered=True, ulps=0,
    keeps_zero=True, vanishes=True, torch="torch.relu({})",
    triton="tl.maximum({0}, 0.0, propagate_nan=tl.PropagateNan.ALL)", c="max_nan({0}, 0.0f)",
    aten=("relu.default",),
)  # fmt: skip
_row(
    "sigmoid", 1, 8, _sigmoid, about="1 / (1 + exp(-x)).", defined=_sigmoid_by_exp,
    is_exponential=True, rises=True, ulps=4, divides="one", vanishes=True, is_logit=True,
    straight="absolute", torch="torch.sigmoid({})", c="reciprocal_fast(1.0f + expf(-{0}))",
    has_out=True, aten=("sigmoid.default",),
)  # fmt: skip
_row(
    "silu", 1, 9, lambda x: x * _sigmoid(x), about="x * sigmoid(x).", defined=_silu_by_exp,
    is_exponential=True, steepest=1.3, ulps=4, divides="operand", keeps_zero=True, is_logit=True,
    straight="absolute", torch="F.silu({})", c="{0} * reciprocal_fast(1.0f + expf(-{0}))",
    aten=("silu.default",),
)  # fmt: skip
_row(
    "tanh", 1, 10, np.tanh, about="The hyperbolic tangent.", defined=_tanh_by_exp,
    is_exponential=True, rises=True, ulps=4, keeps_zero=True, is_logit=True, straight="absolute",
    torch="torch.tanh({})", c="tanhf({0})", has_out=True, aten=("tanh.default",),
)  # fmt: skip
_row(
    "gelu", 1, 20, _gelu, over_field=_gelu_by_erf, is_keyed=True, steepest=1.3, ulps=4,
    rounds="operand", keeps_zero=True, straight="absolute", torch="F.gelu({})",
    triton="0.5 * {0} * (1.0 + tl.erf({0} * 0.7071067811865476))",
    c="gelu_fast({0})",
)  # fmt: skip
_row(
    # 0.5 (1 + tanh z) = sigmoid(2 z), z = sqrt(2 / pi) (x + 0.044715 x^3)
    "gelu_tanh", 1, 16, _gelu_tanh, over_field=_gelu_by_tanh, is_exponential=True, steepest=1.3,
    ulps=4, rounds="operand", keeps_zero=True, straight="absolute",
    torch='F.gelu({}, approximate="tanh")',
    triton="{0} * tl.sigmoid(1.5957691216057308 * {0} * (1.0 + 0.044715 * {0} * {0}))",
    c="{0} * reciprocal_fast("
    "1.0f + expf(-(1.5957691216057308f * {0} * (1.0f + 0.044715f * {0} * {0}))))",
)  # fmt: skip
_row(
    "softplus", 1, 16, lambda x: np.logaddexp(0.0, x), is_keyed=True, is_exponential=True,
    is_fresh=True, rises=True, ulps=4, vanishes=True, is_logit=True, torch="F.softplus({})",
    defined=lambda f, x: f.log(f.add(f.constant(1), f.exp(x))), points=(20.0,),
    lowered=lambda f, x: f.add(f.maximum(x, f.constant(0)), f.log1p(f.exp(f.neg(f.abs(x))))),
)  # fmt: skip
_row(
    "mish", 1, 18, lambda x: x * np.tanh(np.logaddexp(0.0, x)), defined=_mish_by_exp,
    about="x * tanh(softplus(x)).", is_exponential=True, steepest=1.1, ulps=4, keeps_zero=True,
    is_logit=True, straight="absolute", lowered=_mish_in_range, torch="F.mish({})",
    aten=("mish.default",),
)  # fmt: skip
_row(
    "hardswish", 1, 5, lambda x: x * (np.clip(x + 3.0, 0.0, 6.0) / 6.0), defined=_hardswish,
    about="x * clamp(x + 3, 0, 6) / 6.", is_ordered=True, steepest=1.5, ulps=4, keeps_zero=True,
    lowered=_hardswish, points=(3.0, -3.0), torch="F.hardswish({})", aten=("hardswish.default",),
)  # fmt: skip
_row(
    "sin", 1, 20, np.sin, about="The sine.", parity="odd", steepest=1.0, period=2 * np.pi, ulps=4,
    keeps_zero=True, torch="torch.sin({})", triton="tl.sin({0})", c="sinf({0})", has_out=True,
    points=(np.pi, 1e4), branches=True, aten=("sin.default",),
)  # fmt: skip
_row(
    "cos", 1, 20, np.cos, about="The cosine.", parity="even", steepest=1.0, period=2 * np.pi,
    ulps=4, torch="torch.cos({})", triton="tl.cos({0})", c="cosf({0})", has_out=True,
    branches=True, aten=("cos.default",),
)  # fmt: skip
_row(
    "atan", 1, 20, np.arctan, about="The inverse tangent.", parity="odd", rises=True, ulps=4,
    keeps_zero=True, straight="absolute", torch="torch.atan({})", c="atanf({0})", has_out=True,
    aten=("atan.default",), branches=True,
)  # fmt: skip
_row(
    "floor", 1, 1, np.floor, about="The largest whole number up to x.", is_keyed=True,
    is_fresh=True, rises=True, jumps=True, ulps=0, keeps_zero=True, torch="torch.floor({})",
    # Triton's own are 0 for subnormal numbers.
    triton="tl.where(({0} < 0.0) & ({0} > -1.0), -1.0, tl.floor({0}))", c="floorf({0})",
    has_out=True, aten=("floor.default",),
)  # fmt: skip
_row(
    "ceil", 1, 1, np.ceil, about="The smallest whole number from x on.", defined=_ceil_by_floor,
    is_keyed=True, is_fresh=True, rises=True, jumps=True, ulps=0, keeps_zero=True,
    torch="torch.ceil({})", c="ceilf({0})", has_out=True, aten=("ceil.default",),
    triton="tl.where(({0} > 0.0) & ({0} < 1.0), 1.0, tl.ceil({0}))",
)  # fmt: skip
_row(
    "trunc", 1, 1, np.trunc, about="x without its fraction.", parity="odd", rises=True, jumps=True,
    ulps=0, keeps_zero=True, torch="torch.trunc({})", has_out=True, aten=("trunc.default",),
    triton="tl.where({0} < 0.0, tl.ceil({0}), tl.floor({0}))", c="truncf({0})",
)  # fmt: skip
_row(
    "round", 1, 1, np.rint, about="The nearest whole number; of two the even one.", parity="odd",
    rises=True, jumps=True, is_quantiser=True, ulps=0, keeps_zero=True,
    torch="torch.round({})", c="rintf({0})",
    # From 2^23 on there are whole numbers only: a sum of that size has lost its fraction.
    triton="tl.where(tl.abs({0}) < 4194304.0, ({0} + 12582912.0) - 12582912.0, {0})",
    has_out=True, aten=("round.default",),
)  # fmt: skip
_row(
    "e4m3", 1, 2, _e4m3, about="The nearest number of float8_e4m3fn; 448 for what is beyond.",
    parity="odd", rises=True, is_quantiser=True, ulps=0, keeps_zero=True,
    torch="torch.clamp({0}, -448.0, 448.0).to(torch.float8_e4m3fn).float()",
    triton="tl.cast(tl.cast({0}, tl.float8e4nv), tl.float32)", c="nearest_e4m3({0})",
)  # fmt: skip
_row(
    "isnan", 1, 1, lambda x: _as_float(np.isnan(x)), about="Whether x is not a number.",
    is_keyed=True, is_ordered=True, is_fresh=True, over_field=_truth_of("isnan"), ulps=0,
    steepest=0.0, keeps_zero=True, vanishes=True, torch="torch.isnan({}).float()",
    triton="tl.where({0} != {0}, 1.0, 0.0)", c="isnan({0}) ? 1.0f : 0.0f",
    aten=("isnan.default",),
)  # fmt: skip
_row(
    "isinf", 1, 1, lambda x: _as_float(np.isinf(x)), about="Whether x is infinite.",
    is_keyed=True, is_ordered=True, is_fresh=True, over_field=_truth_of("isinf"), ulps=0,
    steepest=0.0, keeps_zero=True, torch="torch.isinf({}).float()",
    triton='tl.where(tl.abs({0}) == float("inf"), 1.0, 0.0)', c="isinf({0}) ? 1.0f : 0.0f",
    aten=("isinf.default",),
)  # fmt: skip


def _infix(name: str, symbol: str, over_floats: Any, **traits: Any) -> Operator:
    text = f"{{0}} {symbol} {{1}}"
    flops = traits.pop("flops", 1)
    return _row(name, 2, flops, over_floats, symbol=symbol, torch=text, text=text, **traits)


_infix("add", "+", np.add, commutative=True, is_rational=True, has_out=True)
_infix("sub", "-", np.subtract, is_rational=True, has_out=True)
_infix("mul", "*", np.multiply, commutative=True, is_rational=True, has_out=True)
_infix(
    "div", "/", np.divide, flops=4, is_rational=True, is_partial=True, ulps=4, divides="operand",
    straight="relative", has_out=True, branches=True,
)  # fmt: skip
_row(
    "pow", 2, 20, np.power, symbol="^", is_keyed=True, is_partial=True, ulps=4,
    torch="torch.pow({}, {})", c="powf({0}, {1})", has_out=True, branches=True,
)  # fmt: skip
_row(
    # Triton's is x - y * trunc(x / y), which is no remainder where the quotient is large.
    "fmod", 2, 8, np.fmod, about="The remainder of x / y, of the sign of x.", is_keyed=True,
    is_fresh=True, is_partial=True, jumps=True, ulps=4, rounds="operand",
    torch="torch.fmod({}, {})", c="fmodf({0}, {1})", has_out=True, branches=True,
)  # fmt: skip
_row(
    "bit_and", 2, 1, lambda x, y: _as_float(_as_whole(x) & _as_whole(y)), is_keyed=True,
    about="The bits that two whole numbers have both.", is_fresh=True,
    is_bitwise=True, ulps=0, torch="torch.bitwise_and({}, {})",
    triton="tl.cast({0}, tl.int32) & tl.cast({1}, tl.int32)", c="(int){0} & (int){1}",
)  # fmt: skip
_row(
    "bit_or", 2, 1, lambda x, y: _as_float(_as_whole(x) | _as_whole(y)), is_keyed=True,
    about="The bits that one of two whole numbers has.", is_fresh=True,
    is_bitwise=True, ulps=0, torch="torch.bitwise_or({}, {})",
    triton="tl.cast({0}, tl.int32) | tl.cast({1}, tl.int32)", c="(int){0} | (int){1}",
)  # fmt: skip
_row(
    "bit_xor", 2, 1, lambda x, y: _as_float(_as_whole(x) ^ _as_whole(y)), is_keyed=True,
    about="The bits in which two whole numbers differ.", is_fresh=True,
    is_bitwise=True, ulps=0, torch="torch.bitwise_xor({}, {})",
    triton="tl.cast({0}, tl.int32) ^ tl.cast({1}, tl.int32)", c="(int){0} ^ (int){1}",
)  # fmt: skip
_row(
    "shift_right", 2, 1, lambda x, y: _as_float(_as_whole(x) >> np.clip(_as_whole(y), 0, 63)),
    about="A whole number over 2^y, rounded down.", is_keyed=True, is_fresh=True, is_bitwise=True,
    ulps=0, torch="torch.bitwise_right_shift({}, {})",
    triton="tl.cast({0}, tl.int32) >> tl.cast({1}, tl.int32)", c="(int){0} >> (int){1}",
)  # fmt: skip
_row(
    "maximum", 2, 1, np.maximum, about="The larger of two.", commutative=True, is_ordered=True,
    ulps=0, torch="torch.maximum({}, {})", c="max_nan({0}, {1})", has_out=True,
    triton="tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", aten=("maximum.default",),
)  # fmt: skip
_row(
    "minimum", 2, 1, np.minimum, about="The smaller of two.", commutative=True, is_ordered=True,
    ulps=0, torch="torch.minimum({}, {})", c="-max_nan(-{0}, -{1})", has_out=True,
    triton="tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", aten=("minimum.default",),
)  # fmt: skip
_COMPARED: dict[str, Any] = {"is_ordered": True, "is_fresh": True, "ulps": 0}
_infix("lt", "<", lambda x, y: _as_float(x < y), **_COMPARED)
_infix("le", "<=", lambda x, y: _as_float(x <= y), **_COMPARED)
_infix("gt", ">", lambda x, y: _as_float(x > y), **_COMPARED)
_infix("ge", ">=", lambda x, y: _as_float(x >= y), **_COMPARED)
_infix("eq", "==", lambda x, y: _as_float(x == y), commutative=True, **_COMPARED)
_infix("ne", "!=", lambda x, y: _as_float(x != y), commutative=True, **_COMPARED)

WHERE = _row(
    "where", 3, 1, lambda c, x, y: _as_float(np.where(np.asarray(c) != 0, x, y)), is_rational=True,
    ulps=0, triton="tl.where({0}, {1}, {2})", c="{0} ? {1} : {2}",
)  # fmt: skip
# The attribute is the target type. The numerical check covers rounding; a field is exact.
CAST = _row("cast", 1, 0, lambda x: x, over_field=lambda f, x: x, is_rational=True, keeps_zero=True)
