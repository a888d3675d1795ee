"""``x[mask]``: how many elements a mask selects depends on values, and so does the shape.

A program leaves the elements where they are, along one axis for all that the mask has, and so does
what is computed of them element by element or row by row. Sums and means take those that the mask
selects; written back under the same mask each is at its place. All else needs the shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch.lower.lowering import Lowering
from mirage_py.frontend.torch.lower.refusals import base_name
from mirage_py.ugraph.building import views
from mirage_py.ugraph.building.views import NamedArray

# Each element of a result is made of one of each operand, or of one row.
_EACH_FAMILIES = ("activations", "arithmetic")
_EACH = (
    "where", "masked_fill", "lt", "le", "gt", "ge", "eq", "ne", "logical_not", "logical_and",
    "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not",
    "_to_copy", "clone", "contiguous", "alias", "detach", "lift_fresh_copy", "dropout",
    "_assert_tensor_metadata", "zeros_like", "ones_like", "full_like", "broadcast_tensors",
    "embedding", "linear", "unsqueeze",
)  # fmt: skip
# What a reduction takes in the place of an element that is not selected.
_NEUTRAL = {"sum": 0.0, "mean": 0.0, "any": 0.0, "all": 1.0}


@dataclass(frozen=True, slots=True)
class Selection:
    """The truth values of a mask along one axis."""

    chosen: NamedArray

    @property
    def dims(self) -> list[str]:
        """The dimensions of its axis."""
        return [d for axis in self.chosen.axes for d in axis]


def is_size(node: torch.fx.Node) -> bool:
    """Whether a node says how many elements are selected, or checks that."""
    value = node.meta.get("val")
    checks = base_name(str(node.target)) in ("_assert_scalar", "sym_constrain_range_for_size")
    return checks or isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat))


def size_of(t: Lowering, node: torch.fx.Node) -> NamedArray | None:
    """How many elements are selected, where a node says just that."""
    known = t.selections.get(str(node.meta.get("val")))
    return None if known is None else _count(t, known)


def is_about(node: torch.fx.Node) -> bool:
    """Whether a node makes, or takes, what a mask selects, or how much that is."""
    read = node.all_input_nodes
    return is_selected(node) or any(is_selected(n) or is_size(n) for n in read)


def is_selected(node: torch.fx.Node) -> bool:
    """Whether an extent of a tensor depends on values."""
    value = node.meta.get("val")
    parts = value if isinstance(value, (tuple, list)) else (value,)
    return any(_symbols(p) for p in parts)


def check_result(t: Lowering, node: torch.fx.Node) -> None:
    """Refuses a result of the function whose shape depends on values."""
    if is_selected(node) or is_size(node):
        raise _shape_refusal(t)


def lowered_selection(
    t: Lowering,
    node: torch.fx.Node,
    handler: Callable[..., Any],
    family: str,
    args: Any,
    kwargs: Any,
) -> Any:
    """What a node makes of selected elements, or selects."""
    name = base_name(str(node.target))
    if name == "index":
        return _select(t, node, args)
    if name == "masked_select":
        return _select(t, node, (args[0], [args[1]]))
    if name == "index_put":
        return _put(t, node, *args, **kwargs)
    sizes = [a for a, n in zip(args, node.args, strict=True) if _is_size(n)]
    if any(_is_size(n) for n in node.all_input_nodes) and (
        family != "arithmetic" or not sizes or None in sizes
    ):
        raise _shape_refusal(t)
    if name in _NEUTRAL and is_selected(node.all_input_nodes[0]):
        return _reduced(t, node, name, handler, args, kwargs)
    if family in _EACH_FAMILIES or name in _EACH:
        return handler(t, *args, **kwargs)
    raise _shape_refusal(t)


def _select(t: Lowering, node: torch.fx.Node, args: Any) -> NamedArray:
    x, indices = args
    given = node.args[1]
    masks = given if isinstance(given, (list, tuple)) else [given]
    symbols = _symbols(node.meta["val"])
    first = masks[0] if len(masks) == len(symbols) == 1 else None
    if not isinstance(first, torch.fx.Node) or t.result_dtype(first) is not torch.bool:
        raise _shape_refusal(t)
    mask = indices[0]
    if base_name(str(node.target)) == "masked_select":
        x, mask = views.broadcast(t.builder, [x, mask])
    found = Selection(views.reshape(t.builder, mask, (-1,)))
    if t.selections.setdefault(symbols[0], found) != found:
        raise _shape_refusal(t)
    return views.reshape(t.builder, x, (-1, *t.shape(x)[len(mask.axes) :]))


def _put(
    t: Lowering,
    node: torch.fx.Node,
    x: NamedArray,
    indices: Any,
    values: NamedArray,
    accumulate: bool = False,
) -> NamedArray:
    """Elements that were selected by the very mask go back to their places."""
    given, source = node.args[1], node.args[2]
    assert isinstance(given, (list, tuple))
    assert isinstance(source, torch.fx.Node)
    symbols = _symbols(source.meta["val"])
    known = t.selections.get(symbols[0]) if len(symbols) == 1 else None
    mask, shape = indices[0], t.shape(x)
    if len(given) != 1 or known != Selection(views.reshape(t.builder, mask, (-1,))):
        raise _shape_refusal(t)
    rest = shape[len(mask.axes) :]
    have = t.shape(values)
    # A number for each selected row is one for all elements of it, in front of which axes are new.
    values = views.reshape(
        t.builder, values, (have[0], *[1] * (1 + len(rest) - len(have)), *have[1:])
    )
    values = views.expand(t.builder, values, (have[0], *rest))
    values = views.reshape(t.builder, values, shape)
    for _ in rest:
        mask = views.unsqueeze(t.builder, mask, len(mask.axes))
    return t.apply("where", mask, t.apply("add", x, values) if accumulate else values, x)


def _reduced(
    t: Lowering, node: torch.fx.Node, name: str, handler: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    (source, *_) = node.args
    assert isinstance(source, torch.fx.Node)
    shape = source.meta["val"].shape
    places = [n for n, extent in enumerate(shape) if isinstance(extent, torch.SymInt)]
    known = t.selections.get(str(shape[places[0]])) if len(places) == 1 else None
    if known is None:
        raise _shape_refusal(t)
    if is_selected(node):  # along other axes
        return handler(t, *args, **kwargs)
    chosen = known.chosen
    for n in range(len(shape)):
        if n != places[0]:
            chosen = views.unsqueeze(t.builder, chosen, n)
    x = t.apply("where", chosen, args[0], _NEUTRAL[name])
    found = handler(t, x, *args[1:], **kwargs)
    if name != "mean":
        return found
    count = float(t.shape(chosen)[places[0]])
    return t.apply("div", t.apply("mul", found, count), _count(t, known))


def _count(t: Lowering, known: Selection) -> NamedArray:
    return NamedArray(t.builder.sum(known.chosen.node, known.dims), ())


def _is_size(node: object) -> bool:
    return isinstance(node, torch.fx.Node) and is_size(node)


def _symbols(value: object) -> list[str]:
    shape: tuple[Any, ...] = value.shape if isinstance(value, torch.Tensor) else ()
    return [str(extent) for extent in shape if isinstance(extent, torch.SymInt)]


def _shape_refusal(t: Lowering) -> UnsupportedError:
    return t.refuse(
        "the number of elements that a mask selects decides a shape, which is not supported",
        why="the shape of its result depends on values; selected elements may be computed with one "
        "by one, summed up, averaged, and written back under the same mask",
        repair="keep the shape, and use the mask with torch.where instead",
    )
