"""Tensors of complex numbers: pairs of real arrays, added, multiplied and viewed.

Rotary embeddings are written so, and return real tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mirage_py.frontend.torch.lower.lowering import Lowering, Operand
from mirage_py.ugraph.building.views import NamedArray

# Operators whose handlers take complex arrays, or do the same to real and to imaginary parts.
_OWN = ("view_as_real", "_conj", "conj_physical")
_COPIES = ("clone", "contiguous", "alias", "detach")
_PART_BY_PART = "shapes"


@dataclass(frozen=True, slots=True)
class ComplexArray:
    """The two parts of a tensor of complex numbers."""

    real: NamedArray
    imag: NamedArray


def holds_complex(args: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether an operand is a tensor of complex numbers."""
    return any(isinstance(x, ComplexArray) for x in _flat((args, *kwargs.values())))


def on_complex(
    t: Lowering,
    operator: str,
    family: str,
    handler: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """What an operator, with its ``handler`` for real tensors, makes of complex ones."""
    name = operator.removeprefix("aten.").partition(".")[0]
    if name in _OWN:
        return handler(t, *args, **kwargs)
    if name in _ARITHMETIC and not kwargs:
        return _ARITHMETIC[name](t, *args)
    if family == _PART_BY_PART or name in _COPIES:
        real, imag = (handler(t, *_part(args, p), **_part(kwargs, p)) for p in ("real", "imag"))
        if isinstance(real, NamedArray):
            return ComplexArray(real, imag)
        return tuple(map(ComplexArray, real, imag))
    raise t.refuse(
        f"torch operator {operator} of complex numbers is not supported",
        why="they are added, multiplied and viewed, no more",
        repair="use the real form: two real tensors",
    )


def _mul(t: Lowering, x: Operand | ComplexArray, y: Operand | ComplexArray) -> ComplexArray:
    if not isinstance(x, ComplexArray):
        x, y = y, x
    assert isinstance(x, ComplexArray)
    if not isinstance(y, ComplexArray):
        return ComplexArray(t.apply("mul", x.real, y), t.apply("mul", x.imag, y))
    products = [t.apply("mul", a, b) for a in (x.real, x.imag) for b in (y.real, y.imag)]
    return ComplexArray(
        t.apply("sub", products[0], products[3]), t.apply("add", products[1], products[2])
    )


def _added(op: str) -> Callable[..., ComplexArray]:
    def added(t: Lowering, x: Operand | ComplexArray, y: Operand | ComplexArray) -> ComplexArray:
        (a, b), (c, d) = _sides(t, x), _sides(t, y)
        return ComplexArray(t.apply(op, a, c), t.apply(op, b, d))

    return added


def _sides(t: Lowering, x: Operand | ComplexArray) -> tuple[NamedArray, NamedArray]:
    return (x.real, x.imag) if isinstance(x, ComplexArray) else (t.array(x), t.array(0.0))


_ARITHMETIC: Mapping[str, Callable[..., ComplexArray]] = {
    "mul": _mul,
    "add": _added("add"),
    "sub": _added("sub"),
}


def _part(values: Any, name: str) -> Any:
    """The values with one part in the place of each complex array."""
    if isinstance(values, ComplexArray):
        return getattr(values, name)
    if isinstance(values, Mapping):
        return {key: _part(value, name) for key, value in values.items()}
    if isinstance(values, (list, tuple)):
        return [_part(value, name) for value in values]
    return values


def _flat(values: Any) -> list[Any]:
    if isinstance(values, (list, tuple)):
        return [x for value in values for x in _flat(value)]
    return [values]
