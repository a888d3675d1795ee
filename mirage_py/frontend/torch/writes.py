"""What a call writes into tensors that were there before it, and results that are such tensors.

A kernel computes what is new; torch puts it where it belongs, with ``copy_`` or ``index_put_`` on a
view of the tensor. What needs no kernel (an argument as it is, a number, positions) torch takes
from the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node, map_arg

from mirage_py.frontend.torch.capture.written_regions import Steps, viewed
from mirage_py.frontend.torch.guards.origins import Origin

# Where a tensor of a call is: the number of a leaf of its arguments, or elsewhere.
Place = int | Origin
Leaves = Sequence[Any] | Mapping[int, Any]


def tensor_at(place: Place, leaves: Leaves) -> torch.Tensor:
    """The tensor of a call that is there."""
    found = leaves[place] if isinstance(place, int) else place.fetch()
    assert isinstance(found, torch.Tensor)
    return found


@dataclass(frozen=True, slots=True)
class TensorView:
    """A view of a tensor of the call; without steps the tensor."""

    place: Place
    steps: Steps = ()

    def __str__(self) -> str:
        place = self.place if isinstance(self.place, int) else self.place.name
        return " ".join([f"argument {place}", *(f"{view}{args}" for view, args in self.steps)])

    def of(self, leaves: Leaves) -> torch.Tensor:
        """The view, of a call with these leaves."""
        return viewed(tensor_at(self.place, leaves), self.steps)


@dataclass(frozen=True, slots=True)
class Given:
    """A tensor that torch makes of a call's tensors; ``places`` are those of placeholders.
    ``copied``: it is a view of one that is written to, and wanted as it was.
    """

    node: Node
    places: Mapping[Node, Place]
    copied: bool = False

    def of(self, leaves: Leaves) -> torch.Tensor:
        """The tensor, of a call with these leaves."""
        made = self._at(self.node, leaves)
        assert isinstance(made, torch.Tensor)
        return made.clone() if self.copied else made

    def _at(self, node: Node, leaves: Leaves) -> Any:
        if node.op == "placeholder":
            return tensor_at(self.places[node], leaves)
        assert callable(node.target)
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: self._at(n, leaves))
        return node.target(*args, **kwargs)


# What is written: output number so-and-so of the program, what torch makes, or a tensor as it is.
Value = int | Given | torch.Tensor


@dataclass(frozen=True, slots=True)
class Write:
    """A value of this shape goes to a view of a tensor; with ``indices`` to these positions of the
    view, along ``dim`` if that is given. It may be smaller than what it is written to.
    """

    target: TensorView
    value: Value
    shape: tuple[int, ...]
    indices: tuple[Given | torch.Tensor | None, ...] | None = None
    accumulate: bool = False
    dim: int | None = None
    copies: bool = False

    def __str__(self) -> str:
        value = f"output {self.value}" if isinstance(self.value, int) else "what is given"
        how = (
            ""
            if self.indices is None
            else f" at positions {self.dim} {self.accumulate} {self.copies}"
        )
        return f"{self.target}{how} <- {value}{list(self.shape)}"

    def ready(self, outputs: Sequence[torch.Tensor], leaves: Leaves) -> Callable[[], object]:
        """The write with all that it needs, to be called when every other one has it too."""
        target = self.target.of(leaves)
        value = outputs[self.value] if isinstance(self.value, int) else _made(self.value, leaves)
        if self.indices is None:
            return lambda: target.copy_(value)
        at = self._positions(leaves)
        if self.dim is not None:
            put = torch.ops.aten.index_copy_ if self.copies else torch.ops.aten.scatter_
            return lambda: put(target, self.dim, *at, value)
        return lambda: torch.ops.aten.index_put_(target, at, value, self.accumulate)

    def written(self, leaves: Leaves) -> torch.Tensor:
        """The value, from what is there now."""
        found = self.target.of(leaves)
        if self.dim is not None:
            read = torch.ops.aten.index_select if self.copies else torch.ops.aten.gather
            found = read(found, self.dim, *self._positions(leaves))
        elif self.indices is not None:
            found = torch.ops.aten.index(found, self._positions(leaves))
        found = found[(0,) * (found.dim() - len(self.shape))]
        for axis, extent in enumerate(self.shape):
            found = found.narrow(axis, 0, extent)
        return found.clone()

    def _positions(self, leaves: Leaves) -> list[torch.Tensor | None]:
        return [None if i is None else _made(i, leaves) for i in self.indices or ()]


def _made(value: Given | torch.Tensor, leaves: Leaves) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else value.of(leaves)


@contextmanager
def put_back(places: Sequence[Place], leaves: Leaves) -> Iterator[None]:
    """The tensors that are written to as they were, at the end."""
    tensors = [tensor_at(place, leaves) for place in places]
    before = [t.clone() for t in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, old in zip(tensors, before, strict=True):
                tensor.copy_(old)


def overlap(written: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Whether the memory of one of the first may be that of another tensor; each is among the
    others once.
    """
    spans = [_span(t) for t in others]
    for tensor in written:
        first, end = _span(tensor)
        if sum(a < end and first < b for a, b in spans) > 1:
            return True
    return False


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    first = tensor.data_ptr()
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((extent - 1) * stride for extent, stride in pairs)
    return first, first + (last + 1) * tensor.element_size()
