"""The functions of the language and the names that nobody else may take."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from mirage_py.ugraph.building import composites
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.dtypes import ALL_DTYPES
from mirage_py.ugraph.operators import ELEMENTWISE, named


@dataclass(frozen=True, slots=True)
class Function:
    """Called without brackets. ``most`` is None where any number of arguments will do."""

    usage: str
    fewest: int
    most: int | None
    build: Callable[[ProgramBuilder, Sequence[int]], int]


@dataclass(frozen=True, slots=True)
class Reduction:
    """Called with the indices it runs over: ``sum[d](...)``.

    ``keeps`` says whether the result still depends on them; ``eps`` is the default of that
    argument, None where there is no such argument.
    """

    usage: str
    keeps: bool
    eps: float | None
    build: Callable[[ProgramBuilder, int, Sequence[str], float], int]


def _elementwise(op: str) -> Callable[[ProgramBuilder, Sequence[int]], int]:
    return lambda b, args: b.apply(op, *args)


def _folded(op: str) -> Callable[[ProgramBuilder, Sequence[int]], int]:
    return lambda b, args: reduce(lambda x, y: b.apply(op, x, y), args)


def _constant(b: ProgramBuilder, node: int) -> float | None:
    attr = b.nodes[node].attr
    return attr if b.nodes[node].op == "const" and isinstance(attr, float) else None


def power(b: ProgramBuilder, x: int, exponent: int) -> int:
    """x ^ exponent; a constant exponent goes through products and roots."""
    value = _constant(b, exponent)
    # An infinite exponent is no whole number, and the builder would take it for one.
    if value is None or abs(value) == float("inf"):
        return b.apply("pow", x, exponent)
    return b.power(x, value)


def _clamp(b: ProgramBuilder, args: Sequence[int]) -> int:
    x, low, high = args
    if _constant(b, low) != float("-inf"):
        x = b.apply("maximum", x, low)
    return x if _constant(b, high) == float("inf") else b.apply("minimum", x, high)


def _least(b: ProgramBuilder, x: int, dims: Sequence[str], _eps: float) -> int:
    return b.apply("neg", b.max(b.apply("neg", x), dims))


# Written with a sign or a type, or by the search alone.
_OTHERWISE = ("neg", "cast", "shift")
_UNARY = named(lambda o: o.kind == ELEMENTWISE and o.arity == 1 and o.name not in _OTHERWISE)

# `cast` takes the name of a type, which is no value: lower.py builds it.
CAST_USAGE = "cast(x, f16)"

FUNCTIONS: dict[str, Function] = {
    **{op: Function(f"{op}(x)", 1, 1, _elementwise(op)) for op in _UNARY},
    "max": Function("max(a, b)", 2, None, _folded("maximum")),
    "min": Function("min(a, b)", 2, None, _folded("minimum")),
    "pow": Function("pow(x, exponent)", 2, 2, lambda b, args: power(b, args[0], args[1])),
    "fmod": Function("fmod(x, y)", 2, 2, _elementwise("fmod")),
    "bit_and": Function("bit_and(x, y)", 2, 2, _elementwise("bit_and")),
    "bit_or": Function("bit_or(x, y)", 2, 2, _elementwise("bit_or")),
    "bit_xor": Function("bit_xor(x, y)", 2, 2, _elementwise("bit_xor")),
    "shift_right": Function("shift_right(x, bits)", 2, 2, _elementwise("shift_right")),
    "e2m1": Function("e2m1(code)", 1, 1, lambda b, args: composites.e2m1(b, args[0])),
    "clamp": Function("clamp(x, low, high)", 3, 3, _clamp),
    "where": Function("where(condition, a, b)", 3, 3, _elementwise("where")),
}

REDUCTIONS: dict[str, Reduction] = {
    "sum": Reduction("sum[k](x)", False, None, lambda b, x, dims, eps: b.sum(x, dims)),
    "mean": Reduction("mean[k](x)", False, None, lambda b, x, dims, eps: b.mean(x, dims)),
    "max": Reduction("max[k](x)", False, None, lambda b, x, dims, eps: b.max(x, dims)),
    "min": Reduction("min[k](x)", False, None, _least),
    "softmax": Reduction(
        "softmax[k](x)", True, None, lambda b, x, dims, eps: composites.softmax(b, x, dims)
    ),
    "rms_norm": Reduction("rms_norm[k](x, eps=1e-6)", True, 1e-6, composites.rms_norm),
    "layer_norm": Reduction("layer_norm[k](x, eps=1e-5)", True, 1e-5, composites.layer_norm),
    "l2_norm": Reduction("l2_norm[k](x, eps=0)", True, 0.0, composites.l2_norm),
}

CONSTANTS: dict[str, float] = {"inf": float("inf"), "pi": 3.141592653589793}


def function_names() -> tuple[str, ...]:
    """All names that can be called, for "did you mean"."""
    return tuple(dict.fromkeys((*FUNCTIONS, *REDUCTIONS, "cast")))


def usage(name: str) -> str:
    """How a function is called."""
    rows = [table[name].usage for table in (FUNCTIONS, REDUCTIONS) if name in table]
    return " or ".join(rows) if rows else CAST_USAGE


def reserved_as(name: str) -> str:
    """What a name already means in the language, or an empty string."""
    if name in function_names():
        return "a function"
    if name in CONSTANTS:
        return "a constant"
    if any(name == d.name for d in ALL_DTYPES):
        return "an element type"
    # Generated Python and CUDA code uses the names as they stand.
    return "a word of Python" if keyword.iskeyword(name) else ""
