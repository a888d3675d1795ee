"""Symbolic sizes of a region: what they are called, where a call's inputs say them, and the layout
of every input and result at other sizes.

Torch has an expression for each size and stride of a tensor, as ``s53 + 1`` and ``16*s53 + 16``. A
region has names of its own: a symbol that is the size of an axis, and else the expression itself.
What reads a cache of ``s53 + 1`` tokens knows one size, ``s0``, and not how many there were before.
So equal layers, and the same layer in another graph, have one content.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from mirage_py.dynamo.regions.region_program import TensorLayout

Names = tuple[str, ...]
Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Value:
    """An input or a result: expressions of its shape and strides, or of a number, as text in the
    region's names.
    """

    shape: tuple[str, ...]
    strides: tuple[str, ...] = ()
    dtype: torch.dtype | None = None
    device: torch.device | None = None


@dataclass(frozen=True)
class SymbolicSizes:
    """The sizes ``names`` of a region, each that of an axis of an input, or an input itself (axis
    None): ``sources``.
    """

    names: Names
    sources: tuple[tuple[int, int | None], ...]
    inputs: tuple[_Value, ...]
    results: tuple[_Value, ...]

    def of(self, inputs: Sequence[Any]) -> Sizes:
        """The sizes of a call with these inputs, tensors or their layouts."""
        return tuple(
            [int(inputs[n]) if axis is None else inputs[n].shape[axis] for n, axis in self.sources]
        )

    def layouts(self, sizes: Sizes) -> list[TensorLayout | int]:
        """The inputs at these sizes."""
        found: list[TensorLayout | int] = []
        numbers = iter(self._input_numbers(*sizes))
        for value in self.inputs:
            shape = tuple(int(next(numbers)) for _ in value.shape)
            strides = tuple(int(next(numbers)) for _ in value.strides)
            if value.dtype is None or value.device is None:
                found.append(shape[0])
            else:
                found.append(TensorLayout(shape, strides, value.dtype, value.device))
        return found

    def result_strides(self, sizes: Sizes) -> list[tuple[int, ...]]:
        """The strides that torch expects of each result at these sizes."""
        numbers = iter(self._stride_numbers(*sizes))
        return [tuple(int(next(numbers)) for _ in value.strides) for value in self.results]

    def result_shapes(self, sizes: Sizes) -> list[tuple[int, ...]]:
        """The shape of each result at these sizes."""
        return [tuple(self.evaluated(value.shape, sizes)) for value in self.results]

    def axes(self) -> dict[tuple[int, int], str]:
        """The axes of inputs whose size is open, (input, axis), with the expression of it."""
        return {
            (n, axis): text
            for n, value in enumerate(self.inputs)
            for axis, text in enumerate(value.shape)
            if value.dtype is not None and not text.isdigit()
        }

    def evaluated(self, texts: Sequence[str], sizes: Sizes) -> list[int]:
        """Expressions in the region's names at these sizes."""
        return [int(n) for n in _function(self.names, texts)(*sizes)]

    def where_one_is_1(self, gone: str, kept: str) -> SymbolicSizes | None:
        """The same with ``gone`` as 1, and so ``kept`` as all of their product; ``kept`` is first.
        None where the size of an axis does not say so any more.
        """
        places = dict(zip(self.names, self.sources, strict=True))
        if places[kept][1] is None:
            return None
        names = (kept, *(n for n in self.names if n not in (gone, kept)))
        inputs, results = (
            tuple(
                replace(
                    value,
                    shape=tuple(_with_1(t, gone) for t in value.shape),
                    strides=tuple(_with_1(t, gone) for t in value.strides),
                )
                for value in values
            )
            for values in (self.inputs, self.results)
        )
        return SymbolicSizes(names, tuple(places[n] for n in names), inputs, results)

    @cached_property
    def _input_numbers(self) -> Callable[..., Sequence[int]]:
        return _function(self.names, [t for v in self.inputs for t in (*v.shape, *v.strides)])

    @cached_property
    def _stride_numbers(self) -> Callable[..., Sequence[int]]:
        return _function(self.names, [t for v in self.results for t in v.strides])


def symbolic_sizes(inputs: Sequence[Any], results: Sequence[Any] = ()) -> SymbolicSizes | None:
    """The sizes that torch's symbols stand for in these values; None where all are numbers, or
    where the inputs of a call do not say them.
    """
    places = [
        (n, axis if isinstance(value, torch.Tensor) else None, _expression(size))
        for n, value in enumerate(inputs)
        for axis, size in enumerate(value.shape if isinstance(value, torch.Tensor) else [value])
    ]
    # Axes first: they are dimensions; a number is only passed along.
    places.sort(key=lambda p: p[1] is None)
    places = [p for p in places if not isinstance(p[2], int)]
    if not places:
        return None
    names: dict[Any, str] = {}
    sources: list[tuple[int, int | None]] = []
    replaced: dict[Any, Any] = {}
    for whole_symbol in (True, False):
        for number, axis, expression in places:
            left = expression.xreplace(replaced)
            fresh = left.free_symbols - set(names)
            if not fresh or (whole_symbol and not left.is_symbol):
                continue
            kind: Any = type(min(fresh, key=str))
            name = kind(f"n{len(names)}", integer=True, positive=True)
            solved = _solved(left, name, fresh)
            if solved is None:
                continue
            replaced = {k: v.xreplace(solved) for k, v in replaced.items()} | dict(solved)
            names[name] = str(name)
            sources.append((number, axis))
    described = [_value(v, replaced) for v in inputs], [_value(v, replaced) for v in results]
    everything = [e for value in (*inputs, *results) for e in map(_expression, _sizes_of(value))]
    named = [e.xreplace(replaced) for e in everything if not isinstance(e, int)]
    if any(e.expand().free_symbols - set(names) for e in named):
        return None
    order = tuple(names.values())
    return SymbolicSizes(order, tuple(sources), tuple(described[0]), tuple(described[1]))


def has_symbols(values: Sequence[Any]) -> bool:
    """Whether some size or stride of tensors, or a number, is not known yet; the stride of an axis
    of one element says nothing.
    """
    sizes = (size for value in values for size in _sizes_that_count(value))
    return any(not isinstance(_expression(size), int) for size in sizes)


def size_texts(inputs: Sequence[Any]) -> list[str]:
    """Each input's sizes and strides: in names of the region, or in torch's where it has none."""
    found = symbolic_sizes(inputs)
    if found is None:
        return [", ".join(map(str, _sizes_of(v))) for v in inputs]
    return [", ".join((*v.shape, *v.strides)) for v in found.inputs]


def is_same(one: Any, other: Any) -> bool:
    """Whether two sizes are one whatever the symbols turn out to be."""
    difference = _expression(one) - _expression(other)
    return bool((difference if isinstance(difference, int) else difference.expand()) == 0)


def is_row_major(tensor: torch.Tensor) -> bool:
    """Whether a tensor is that, whatever the symbols turn out to be."""
    step: Any = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if not is_same(size, 1) and not is_same(stride, step):
            return False
        step = step * size
    return True


def _solved(expression: Any, name: Any, fresh: set[Any]) -> Mapping[Any, Any] | None:
    """What the symbol of an expression is, where the expression is called ``name``."""
    if expression.is_symbol:
        return {expression: name}
    for symbol in sorted(fresh, key=str):
        if not expression.is_polynomial(symbol):
            continue
        factor = expression.coeff(symbol, 1)
        rest = (expression - factor * symbol).expand()
        # With another symbol in the factor, as of rows in a batch, it has to go away everywhere.
        if factor != 0 and symbol not in rest.free_symbols:
            return {symbol: ((name - rest) / factor).expand()}
    return None


def _sizes_of(value: Any) -> list[Any]:
    return [*value.shape, *value.stride()] if isinstance(value, torch.Tensor) else [value]


def _sizes_that_count(value: Any) -> list[Any]:
    if not isinstance(value, torch.Tensor):
        return [value]
    steps = zip(value.shape, value.stride(), strict=True)
    return [*value.shape, *(step for size, step in steps if not is_same(size, 1))]


def _expression(size: Any) -> Any:
    """Torch's expression of a size, or the number that it is."""
    expression = getattr(getattr(size, "node", None), "expr", size)
    return expression if getattr(expression, "free_symbols", None) else int(expression)


def _value(value: Any, replaced: Mapping[Any, Any]) -> _Value:
    from torch.utils._sympy.printers import PythonPrinter

    def text(size: Any) -> str:
        found = _expression(size)
        if isinstance(found, int):
            return str(found)
        return str(PythonPrinter().doprint(found.xreplace(replaced).expand()))

    if not isinstance(value, torch.Tensor):
        return _Value((text(value),))
    shape, strides = tuple(map(text, value.shape)), tuple(map(text, value.stride()))
    return _Value(shape, strides, value.dtype, value.device)


def _with_1(text: str, name: str) -> str:
    """An expression where a name stands for 1; a factor of a product is left out."""
    # Where it is more than sums and products, or a power, only the name goes.
    if re.fullmatch(r"[\w\s*+-]*", text) and "**" not in text:
        text = re.sub(rf"\b{name}\*|\*{name}\b", "", text)
    return re.sub(rf"\b{name}\b", "1", text)


def _function(names: Names, texts: Sequence[str]) -> Callable[..., Sequence[int]]:
    """The numbers of expressions, as torch prints them for its guards."""
    import math

    source = f"lambda {', '.join(names)}: [{', '.join(texts)}]"
    found: Callable[..., Sequence[int]] = eval(source, {"math": math, "torch": torch})  # noqa: S307
    return found
