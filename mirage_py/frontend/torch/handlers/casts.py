"""Changes of type, to complex numbers too, and operators that only copy.

Intermediate values are fp32 whatever torch stores them in, so widening a value changes nothing; a
cast that loses digits is a node, because the user asked for the rounding.
"""

from __future__ import annotations

from math import inf

import torch

from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.lower.complex_arrays import ComplexArray
from mirage_py.frontend.torch.lower.lowering import BYTE_FLOATS, INTEGERS, Lowering
from mirage_py.frontend.torch.lower.narrow_integers import is_masked
from mirage_py.ugraph.building import views
from mirage_py.ugraph.building.views import NamedArray
from mirage_py.ugraph.ir.dtypes import DType, dtype

# What a few roundings in float32 change.
_ROUNDED = 2.0**-20
_DIGITS = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24}


@handles("_to_copy.default")
def to_copy(t: Lowering, x: NamedArray, dtype: torch.dtype | None = None) -> NamedArray:
    """The same values in another type."""
    return cast(t, x, dtype)


@handles(
    "clone.default",
    "contiguous.default",
    "lift_fresh_copy.default",
    "dropout.default",
)
def copy(t: Lowering, x: NamedArray, p: float = 0.0, train: bool = False) -> NamedArray:
    """The same values; dropout outside training is this too."""
    if train and p > 0:
        raise t.refuse(
            "dropout in training is not supported",
            why="a program has no random numbers",
            repair="call the module in eval mode, or pass training=False",
        )
    return x


@handles("copy.default")
def copied(
    t: Lowering, x: NamedArray, source: NamedArray, non_blocking: bool = False
) -> NamedArray:
    """What ``copy_`` leaves in x."""
    del non_blocking
    kept = cast(t, source, t.result_dtype(), 1)
    return views.expand(t.builder, kept, t.shape(x))


@handles("alias.default", "detach.default", "lift_fresh.default", aliases=True)
def alias(t: Lowering, x: NamedArray) -> NamedArray:
    """The same tensor."""
    del t
    return x


@handles("_assert_tensor_metadata.default")
def assert_metadata(
    t: Lowering,
    x: NamedArray,
    size: object = None,
    stride: object = None,
    dtype: object = None,
) -> None:
    """A check that export leaves behind; it held when the function was traced."""
    del t, x, size, stride, dtype


def cast(t: Lowering, x: NamedArray, to: torch.dtype | None, operand: int = 0) -> NamedArray:
    """``x`` (an operand of the node in hand) in the type ``to``; None keeps its type."""
    if to is None:
        return x
    have = t.torch_dtype(operand)
    if to is have:
        return x
    if to is torch.float64:
        raise t.refuse(
            "float64 is not supported",
            why="kernels accumulate in float32",
            repair="compute in float32, or leave this part to torch",
        )
    if to is torch.bool:
        return t.apply("ne", x, 0.0)
    if to in INTEGERS:
        return _whole(t, x, have, to)
    if to is torch.float8_e4m3fn:
        return _quantised(t, x, have)
    if to not in _DIGITS:
        raise t.refuse(f"the type {to} is not supported", repair="use float16, bfloat16 or float32")
    # Both floats of a byte are numbers of either half type.
    if have is torch.bool or have in BYTE_FLOATS or _holds(t, x, to):
        return x
    return NamedArray(t.builder.cast(x.node, _dtype(to)), x.axes)


def _holds(t: Lowering, x: NamedArray, to: torch.dtype) -> bool:
    """Whether every value of ``x`` is a number of the type ``to`` already."""
    if to is torch.float32:  # as which kernels hold integers too
        return True
    bounds = t.whole_bounds(x)
    if bounds is not None:
        return max(-bounds[0], bounds[1]) <= 1 << _DIGITS[to]
    node = t.builder.nodes[x.node]
    return node.op == "load" and t.builder.inputs[node.access.tensor].dtype is _dtype(to)


def _quantised(t: Lowering, x: NamedArray, have: torch.dtype) -> NamedArray:
    """A rounding site: over a field the code is an unknown function of what is rounded."""
    limit = torch.finfo(torch.float8_e4m3fn).max
    is_within = _is_within(t, x.node, limit) or _is_scaled(t, x.node, limit)
    if not have.is_floating_point or not is_within:
        raise t.refuse(
            f"{have} as torch.float8_e4m3fn is not supported here",
            why=f"torch has NaN for what is out of range, kernels {limit:g}",
            repair=f"clamp the values to {limit:g} on both sides first, or divide them by "
            f"their own amax(abs(x)) / {limit:g}",
        )
    return t.apply("e4m3", x)


def _is_within(t: Lowering, node: int, limit: float) -> bool:
    """Whether clamps keep a value in a range on both sides."""
    least, most = _clamped_to(t, node)
    return -limit <= least and most <= limit


def _is_scaled(t: Lowering, node: int, limit: float) -> bool:
    """Whether it is x / (amax(abs(x)) / limit), or x * (limit / amax(abs(x))): beyond the limit by
    no more than a few roundings, which are far from half of a step.
    """
    for x in _whose_largest(t, node):
        above, below, factor = _product(t, node, x)
        if above == [x] and len(below) == 1:
            bounds = [_of_largest(t, scale, x) for scale in _maxima(t, below[0])]
            if any(share * limit >= abs(factor) * (1.0 - _ROUNDED) for share in bounds):
                return True
    return False


def _whose_largest(t: Lowering, node: int) -> list[int]:
    """Values whose largest magnitude goes into a product or a quotient."""
    found = t.builder.nodes[node]
    if found.op == "max" and t.builder.nodes[found.args[0]].op == "abs":
        return [*t.builder.nodes[found.args[0]].args]
    if found.op not in ("mul", "div", "maximum"):
        return []
    return list(dict.fromkeys(x for a in found.args for x in _whose_largest(t, a)))


def _maxima(t: Lowering, node: int) -> list[int]:
    """The value, and those of which it is the largest."""
    found = t.builder.nodes[node]
    parts = found.args if found.op == "maximum" else ()
    return [node, *(n for a in parts for n in _maxima(t, a))]


def _of_largest(t: Lowering, scale: int, x: int) -> float:
    """A number times which the largest magnitude of x is a scale, or 0."""
    above, below, factor = _product(t, scale, x)
    is_largest = len(above) == 1 and not below and _is_largest(t, above[0], x)
    return factor if is_largest else 0.0


def _product(t: Lowering, node: int, whole: int) -> tuple[list[int], list[int], float]:
    """A value as a product of values over one of others, times a number; one is ``whole``."""
    found = t.builder.nodes[node]
    if found.op == "const" and isinstance(found.attr, float):
        return [], [], found.attr
    if found.op not in ("mul", "div") or node == whole:
        return [node], [], 1.0
    (a, b, c), (d, e, f) = (_product(t, n, whole) for n in found.args)
    if found.op == "mul":
        return [*a, *d], [*b, *e], c * f
    return [*a, *e], [*b, *d], c / f if f else inf


def _is_largest(t: Lowering, node: int, x: int) -> bool:
    """Whether a value is no less than the largest magnitude of x."""
    found = t.builder.nodes[node]
    if found.op == "maximum":
        return any(_is_largest(t, a, x) for a in found.args)
    inner = t.builder.nodes[found.args[0]] if found.op == "max" else None
    return inner is not None and inner.op == "abs" and inner.args[0] == x


def _clamped_to(t: Lowering, node: int) -> tuple[float, float]:
    """The range that clamps to constants, casts and constants themselves leave to a value."""
    found = t.builder.nodes[node]
    if isinstance(found.attr, float) and found.op == "const":
        return found.attr, found.attr
    if found.op == "cast":
        return _clamped_to(t, found.args[0])
    if found.op not in ("maximum", "minimum"):
        return -inf, inf
    pick = max if found.op == "maximum" else min
    sides = [_clamped_to(t, a) for a in found.args]
    return pick(low for low, _ in sides), pick(high for _, high in sides)


def _whole(t: Lowering, x: NamedArray, have: torch.dtype, to: torch.dtype) -> NamedArray:
    kind = torch.iinfo(to)
    if is_masked(t.node_in_hand) and not have.is_floating_point:
        # The upper bits go at once: what chooses among words would not hold their low ones.
        return t.apply("bit_and", x, (1 << kind.bits) - 1)
    bounds = t.whole_bounds(x)
    if have.is_floating_point and bounds is None:
        x = t.apply("trunc", x)
        bounds = t.whole_bounds(x)
    if kind.bits >= torch.iinfo(torch.int32).bits:
        return x
    if bounds is not None and kind.min <= bounds[0] and bounds[1] <= kind.max:
        return x
    if have.is_floating_point:
        raise t.refuse(
            f"{have} as {to} is not supported here",
            why="what is out of range would be any number",
            repair=f"clamp the values to {kind.min} and {kind.max} first, or keep a wider type",
        )
    # The low bits are left, the highest of which is the sign.
    if kind.min == 0:
        return t.apply("bit_and", x, kind.max)
    return t.apply("sub", t.apply("bit_and", x, kind.max), t.apply("bit_and", x, -kind.min))


def _dtype(kind: torch.dtype) -> DType:
    return dtype(str(kind))


@handles("view_as_complex.default", aliases=True)
def view_as_complex(t: Lowering, x: NamedArray) -> ComplexArray:
    """The last axis has the two parts."""
    real, imag = (views.select(t.builder, x, -1, n) for n in range(2))
    return ComplexArray(real, imag)


@handles("view_as_real.default", aliases=True)
def view_as_real(t: Lowering, x: ComplexArray) -> NamedArray:
    """A further axis at the end has the two parts."""
    parts = [views.unsqueeze(t.builder, p, len(p.axes)) for p in (x.real, x.imag)]
    return views.concat(t.builder, parts, len(x.real.axes))


@handles("complex.default")
def complex_(t: Lowering, real: NamedArray, imag: NamedArray) -> ComplexArray:
    """A number of its two parts."""
    one, other = views.broadcast(t.builder, [real, imag])
    return ComplexArray(one, other)


@handles("polar.default")
def polar(t: Lowering, size: NamedArray, angle: NamedArray) -> ComplexArray:
    """A number of a magnitude and an angle."""
    real, imag = (t.apply("mul", size, t.apply(op, angle)) for op in ("cos", "sin"))
    return ComplexArray(real, imag)


@handles("_conj.default", "conj_physical.default", aliases=True)
def conj(t: Lowering, x: NamedArray | ComplexArray) -> NamedArray | ComplexArray:
    """The same real part, and minus the imaginary one; a real number is its own."""
    if isinstance(x, NamedArray):
        return x
    return ComplexArray(x.real, t.apply("neg", x.imag))
