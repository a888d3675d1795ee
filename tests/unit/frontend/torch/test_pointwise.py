"""Every elementwise operator of torch that maps real numbers to real numbers, on odd ones too."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch import trace

NAN, INF = math.nan, math.inf
ODD = (0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -1.5, 0.3, -0.7, 3.7, -2.2, 1e6, -8388609.0, INF, -INF, NAN)
# Where torch has finite numbers for ends, they are those of the type, which float64 does not share.
ENDS = ("nan_to_num",)

ONE = {
    **{
        name: getattr(torch, name)
        for name in [
            "abs",
            "acos",
            "acosh",
            "asin",
            "asinh",
            "atan",
            "atanh",
            "ceil",
            "clone",
            "cos",
            "cosh",
            "deg2rad",
            "erf",
            "exp",
            "exp2",
            "expm1",
            "floor",
            "frac",
            "isfinite",
            "isinf",
            "isnan",
            "isneginf",
            "isposinf",
            "log",
            "log10",
            "log1p",
            "log2",
            "logical_not",
            "neg",
            "rad2deg",
            "reciprocal",
            "relu",
            "round",
            "rsqrt",
            "selu",
            "sgn",
            "sigmoid",
            "sign",
            "sin",
            "sinc",
            "sinh",
            "sqrt",
            "square",
            "tan",
            "tanh",
            "trunc",
            "logit",
        ]
    },
    **{
        name: getattr(F, name)
        for name in [
            "celu",
            "elu",
            "gelu",
            "hardshrink",
            "hardsigmoid",
            "hardswish",
            "hardtanh",
            "leaky_relu",
            "logsigmoid",
            "mish",
            "relu6",
            "silu",
            "softplus",
            "softshrink",
            "softsign",
            "tanhshrink",
        ]
    },
    "log_ndtr_free": torch.special.ndtr,
    "entr": torch.special.entr,
    "round_decimals": lambda x: torch.round(x, decimals=2),
    "round_tens": lambda x: torch.round(x, decimals=-1),
    "nan_to_num_values": lambda x: torch.nan_to_num(x, 1.0, 2.0, -3.0),
    "threshold": lambda x: F.threshold(x, 0.1, 0.5),
    "hardtanh_of_integers": lambda x: F.hardtanh(x, min_val=-1, max_val=1),
    "power": lambda x: x**3,
    "remainder_number": lambda x: torch.remainder(x, 0.5),
    "remainder_negative": lambda x: torch.remainder(x, -1.5),
    "fmod_number": lambda x: torch.fmod(x, 1.5),
    "floor_divide_number": lambda x: x // 0.75,
    "trunc_divide": lambda x: torch.div(x, 0.75, rounding_mode="trunc"),
    "masked": lambda x: x.masked_fill(x.isnan(), 0.0),
}
TWO = {
    **{
        name: getattr(torch, name)
        for name in [
            "add",
            "div",
            "eq",
            "floor_divide",
            "fmax",
            "fmin",
            "fmod",
            "ge",
            "gt",
            "heaviside",
            "le",
            "lerp_free",
            "logaddexp",
            "logaddexp2",
            "logical_and",
            "logical_or",
            "logical_xor",
            "lt",
            "maximum",
            "minimum",
            "mul",
            "ne",
            "pow",
            "remainder",
            "sub",
            "xlogy",
        ]
        if not name.endswith("_free")
    },
    "floor_division": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "trunc_division": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "where": lambda x, y: torch.where(x > y, x, y * 2),
    "clamp": lambda x, y: torch.clamp(x, y, y + 1),
}
REFUSED = {
    **{
        name: getattr(torch, name)
        for name in ["digamma", "erfc", "erfinv", "i0", "lgamma", "signbit"]
    },
    "copysign": lambda x: torch.copysign(x, -x),
    "atan2": lambda x: torch.atan2(x, x + 1),
    "hypot": lambda x: torch.hypot(x, x + 1),
    "nextafter": lambda x: torch.nextafter(x, x + 1),
}


def _numbers() -> torch.Tensor:
    torch.manual_seed(3)
    return torch.cat([torch.tensor(ODD), torch.randn(32) * 3, torch.rand(32)]).reshape(5, 16)


@pytest.mark.parametrize("name", ONE)
def test_of_one(agrees, name):
    # Powers and roots of infinities are not those of IEEE 754, nor is what has a shift.
    x = _numbers()
    x = x[1:] if name in ("power", "sinc", "logit", "log_ndtr_free", "gelu", "mish") else x
    agrees(ONE[name], x)


@pytest.mark.parametrize("name", TWO)
def test_of_two(agrees, name):
    x, y = _numbers(), torch.randn(5, 16)
    if name in ("pow", "logaddexp", "logaddexp2", "xlogy"):
        x = x[1:].abs() + 0.1
        y = y[1:]
    if name in ("eq", "ge", "le", "heaviside", "floor_divide", "remainder"):
        y[0, ::3] = x[0, ::3]
        y[2, 3] = 0.0
    agrees(TWO[name], x, y)


def test_numbers_in_the_place_of_what_is_none(agrees):
    """The ends are those of the type that torch computes in."""
    agrees(torch.nan_to_num, _numbers(), single=True)


def test_masked_rows_whose_weights_are_not_numbers(agrees):
    """A softmax of minus infinities is NaN, which a where replaces: the condition is one mask."""
    keep = torch.rand(5, 16) > 0.4
    keep[2] = False
    traced = agrees(
        lambda x, keep: torch.nan_to_num(torch.softmax(x.masked_fill(~keep, -INF), -1)),
        torch.randn(5, 16) * 300,
        keep,
    )
    first = traced.program.nodes
    assert [n.op for n in first].count("sub") == 0


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_left_to_torch(name):
    with pytest.raises(UnsupportedError, match="is not supported"):
        trace(REFUSED[name], torch.rand(3, 4))
