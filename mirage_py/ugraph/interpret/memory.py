"""Reads and writes of tensors through index expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.interpret.buffers import Buffer, Index, Slot
from mirage_py.ugraph.interpret.frame import Frame
from mirage_py.ugraph.interpret.meaning import Meaning
from mirage_py.ugraph.ir.index import IndexExpr

A = TypeVar("A")


class _Elements(Generic[A]):
    """The elements of a tensor as positions."""

    def __init__(self, tensor: A, meaning: Meaning[A]) -> None:
        self._tensor = tensor
        self._meaning = meaning

    def __getitem__(self, index: tuple[Slot, ...]) -> NDArray[np.int64]:
        at = tuple(np.broadcast_arrays(*map(np.asarray, index)))
        return self._meaning.integers(self._meaning.load(self._tensor, at))


class Window(Generic[A]):
    """What one access touches of a tensor in any frame.

    Where every index is a dimension or a constant and positions are consecutive, that is a block of
    the tensor, and is read and written as one; else element by element.
    """

    __slots__ = ("_bare", "_data", "_index", "_meaning", "_order", "dims")

    def __init__(
        self,
        index: tuple[IndexExpr, ...],
        order: tuple[str, ...],
        meaning: Meaning[A],
        tensors: Mapping[str, A] | None = None,
    ) -> None:
        """``tensors`` has those that hold positions."""
        self._index = index
        self._meaning = meaning
        names = dict.fromkeys(name for e in index for name in e.tensors())
        self._data = {f"{n}[]": _Elements((tensors or {})[n], meaning) for n in names}
        self.dims = tuple(dict.fromkeys(d for e in index for d in e.dims()))
        self._order = tuple(d for d in order if d in self.dims)
        dims = [e.name for e in index if e.is_dim]
        plain = all(e.op in ("dim", "const") for e in index)
        self._bare = plain and len(dims) == len(self.dims)

    def read(self, tensor: A, frame: Frame) -> A:
        """The elements at the frame's points, full-rank."""
        meaning = self._meaning
        block = self._block(frame)
        if block is None:
            found = meaning.load(tensor, self.elements(frame))
        else:
            found = meaning.load(tensor, block)
            if self._order != self.dims:
                found = meaning.transpose(found, [self.dims.index(d) for d in self._order])
        return meaning.reshape(found, frame.shape(self.dims))

    def write(self, buffer: Buffer[A], frame: Frame, value: A) -> None:
        """Put a full-rank value there, repeated along dimensions that it lacks."""
        meaning = self._meaning
        value = meaning.stretch(value, frame.shape(self.dims))
        block = self._block(frame)
        if block is None and self.dims:
            buffer.write(self.elements(frame), value)
            return
        value = meaning.reshape(value, [frame.extent(d) for d in self._order])
        if self._order != self.dims:
            value = meaning.transpose(value, [self._order.index(d) for d in self.dims])
        buffer.write(self.elements(frame) if block is None else block, value)

    def elements(self, frame: Frame) -> tuple[NDArray[np.int64], ...]:
        """The index of each element along each axis of the tensor, full-rank."""
        env: Mapping[str, object] = frame.coordinates(self.dims)
        if self._data:
            env = {**env, **self._data}
        return tuple(np.asarray(e.evaluate(env), dtype=np.int64) for e in self._index)

    def _block(self, frame: Frame) -> Index | None:
        if not self._bare:
            return None
        out: list[Slot] = []
        for expr in self._index:
            if expr.op == "const":
                out.append(expr.value)
                continue
            span = frame.spans[expr.name]
            if not isinstance(span, range):
                return None
            out.append(slice(span.start, span.stop))
        return tuple(out)
