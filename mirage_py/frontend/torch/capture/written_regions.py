"""Regions of inputs that a functional graph writes.

In a functional graph a write is a whole new tensor: ``slice_scatter(cache, k, ...)``. What is taken
off from it here, operator by operator, is what stays as it was; what is left are values, and where
in the tensor each goes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.fx import Node

aten = torch.ops.aten

# A view of a tensor: an overload, and its arguments behind the tensor.
Step = tuple[Callable[..., torch.Tensor], tuple[Any, ...]]
Steps = tuple[Step, ...]

_RESHAPED = (
    "aten.view.default", "aten.reshape.default", "aten._unsafe_view.default",
    "aten.unsqueeze.default", "aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims",
    "aten.flatten.using_ints", "aten.unflatten.int",
)  # fmt: skip
_ORDERED = (
    "aten.permute.default", "aten.transpose.int", "aten.t.default", "aten.numpy_T.default",
)  # fmt: skip
_SAME = ("aten.alias.default", "aten.detach.default", "aten.lift_fresh.default")


# Views that leave out no element and repeat none.
_KEEP_ALL = (aten.view.default, aten.permute.default, aten.alias.default)


@dataclass(frozen=True, slots=True)
class Region:
    """``value`` goes to these views of a tensor, one of the other; with ``indices`` as
    ``index_put_`` has it, with one of them and ``dim`` as ``scatter_``, or as ``index_copy_`` where
    it ``copies``. No element is meant twice, unless ``value`` is no result of a kernel.
    """

    steps: Steps
    value: Node
    indices: tuple[Node | None, ...] | None = None
    accumulate: bool = False
    dim: int | None = None
    copies: bool = False


class Known(Protocol):
    """What torch has or makes without a kernel of ours, when a call is served."""

    def value(self, node: Node) -> bool:
        """Whether it has what is written."""

    def position(self, node: Node) -> bool:
        """Whether it makes these positions."""


# An expression for what a region holds before a write: a node, or a view of one.
_Now = Node | tuple[Step, Any]


def regions_of(value: Node, tensor: Node, known: Known) -> tuple[Region, ...]:
    """What turns ``tensor``, a placeholder, into ``value``, in order."""
    found = tuple(_regions(value, (), tensor, known))
    whole = any(not r.steps and r.indices is None for r in found)
    if whole or not all(_fits(r.steps, tensor.meta["val"]) for r in found):
        return (Region((), _source(value, known)),)
    return found


def view_step(node: Node) -> Step | None:
    """The view that a node is of its first argument; None where it is another operator."""
    name, rest = str(node.target), node.args[1:]
    if name in _SAME:
        return aten.alias.default, ()
    if name in _RESHAPED:
        return aten.view.default, (tuple(node.meta["val"].shape),)
    if name in _ORDERED:
        return aten.permute.default, (_order(node),)
    if name in ("aten.slice.Tensor", "aten.select.int", "aten.expand.default"):
        return node.target, _plain(rest)  # type: ignore[return-value]
    return None


def viewed(tensor: torch.Tensor, steps: Steps) -> torch.Tensor:
    """The tensor through views."""
    for view, args in steps:
        tensor = view(tensor, *args)
    return tensor


def root_of(node: Node) -> tuple[Node, Steps]:
    """What a chain of views ends in, and the views."""
    steps: list[Step] = []
    while node.op == "call_function" and (step := view_step(node)) is not None:
        steps.append(step)
        (node,) = node.args[:1]  # type: ignore[assignment]
    return node, tuple(reversed(steps))


def _regions(node: Node, steps: Steps, now: _Now, known: Known) -> list[Region]:
    """What is written where ``now`` stands, for ``node`` to stand there."""
    if _is(node, now):
        return []
    name = str(node.target)
    step = view_step(node) if node.op == "call_function" else None
    inner = node.args[0] if node.args else None
    if step is not None and step[0] in _KEEP_ALL and isinstance(inner, Node):
        if not isinstance(now, Node) and now[0] == step:
            return _regions(inner, steps[:-1], now[1], known)
        back = _inverse(step, inner)
        return _regions(inner, (*steps, back), (back, now), known)
    if name in ("aten.slice_scatter.default", "aten.select_scatter.default"):
        base, source = node.args[:2]
        assert isinstance(base, Node)
        assert isinstance(source, Node)
        part = aten.slice.Tensor if "slice" in name else aten.select.int
        inside: Step = (part, _plain(node.args[2:]))
        return [
            *_regions(base, steps, now, known),
            *_regions(source, (*steps, inside), (inside, base), known),
        ]
    if name == "aten.index_put.default":
        base, indices, source, *accumulate = node.args
        assert isinstance(base, Node)
        assert isinstance(source, Node)
        adds = bool(accumulate and accumulate[0])
        places = tuple(indices)  # type: ignore[arg-type]
        torch_can = all(i is None or known.position(i) for i in places)
        if torch_can and (known.value(source) or (not adds and _are_distinct(places))):
            put = Region(steps, _source(source, known), places, adds)
            return [*_regions(base, steps, now, known), put]
    if name in ("aten.scatter.src", "aten.index_copy.default"):
        base, dim, index, source = node.args
        assert isinstance(base, Node)
        assert isinstance(index, Node)
        assert isinstance(source, Node)
        shapes = index.meta["val"].shape, source.meta["val"].shape
        copies = "index_copy" in name
        one = shapes[0].numel() == 1 if copies else shapes[0] == shapes[1]
        distinct = one and (copies or not shapes[0] or shapes[0][dim] == 1)
        if known.position(index) and (known.value(source) or distinct):
            put = Region(steps, source, (index,), False, dim, copies)  # type: ignore[arg-type]
            return [*_regions(base, steps, now, known), put]
    return [Region(steps, _source(node, known))]


def _source(node: Node, known: Known) -> Node:
    """What a copy is made of, where ``copy_`` has no more to do than that."""
    if str(node.target) != "aten.copy.default":
        return node
    source = node.args[1]
    assert isinstance(source, Node)
    mine, other = node.meta["val"], source.meta["val"]
    same = mine.shape == other.shape and mine.dtype is other.dtype
    return source if same or known.value(source) else node


def _is(node: Any, now: _Now) -> bool:
    """Whether a node is this expression."""
    if isinstance(now, Node):
        return node is now
    if not isinstance(node, Node) or node.op != "call_function":
        return False
    return view_step(node) == now[0] and _is(node.args[0], now[1])


def _are_distinct(indices: tuple[Node | None, ...]) -> bool:
    """Whether no position is meant twice: there is one, or each has a number of its own."""
    given = [i for i in indices if i is not None]
    counts = [i.meta["val"].numel() for i in given]
    numbers = [
        i.meta["val"].numel()
        for i in given
        if str(i.target).startswith("aten.arange.") and i.meta["val"].dim() == 1
    ]
    if any(i.meta["val"].dtype is torch.bool for i in given):
        return False
    return max(counts) == 1 or any(
        n == max(counts) and all(i.meta["val"].dim() <= 1 for i in given) for n in numbers
    )


def _inverse(step: Step, inner: Node) -> Step:
    """The view of a view that is what it was taken of."""
    if step[0] is aten.permute.default:
        (order,) = step[1]
        return step[0], (tuple(sorted(range(len(order)), key=order.__getitem__)),)
    return step if step[0] is aten.alias.default else (step[0], (tuple(inner.meta["val"].shape),))


def _fits(steps: Steps, tensor: torch.Tensor) -> bool:
    """Whether a tensor of these strides has these views."""
    like = torch.empty_strided(tensor.shape, tensor.stride(), device="meta")
    try:
        viewed(like, steps)
    except RuntimeError:
        return False
    return True


def _order(node: Node) -> tuple[int, ...]:
    rank = node.meta["val"].dim()
    order = list(range(rank))
    if str(node.target) == "aten.permute.default":
        return tuple(d % rank for d in node.args[1])  # type: ignore[union-attr]
    if str(node.target) == "aten.transpose.int" and rank:
        first, second = node.args[1:3]
        order[first], order[second] = order[second], order[first]  # type: ignore[index]
        return tuple(order)
    return tuple(reversed(order))


def _plain(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(tuple(a) if isinstance(a, (list, tuple)) else a for a in args)
