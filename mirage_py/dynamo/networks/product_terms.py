"""Vectors added to matmuls in an ATen graph, folded into ``addmm``.

Substitutions know matmuls and sums only. The library adds a vector to the rows of a matmul in the
same kernel, which saves a launch if nothing else would fuse the sum. If a matmul is split into
pieces with a vector each, the vectors are concatenated, so that the pieces stay views.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node

_aten = torch.ops.aten
_VIEWS = (
    _aten.view.default,
    _aten.reshape.default,
    _aten._unsafe_view.default,  # noqa: SLF001  the name of an operator
)


def with_terms(module: GraphModule, constants: Mapping[str, torch.Tensor]) -> int:
    """Put products with their terms in the place of both; how many. ``constants`` are the tensors
    of placeholders that are weights: vectors of pieces are joined where they are among these.
    """
    graph = module.graph
    count = 0
    product: Any
    for product in list(graph.find_nodes(op="call_function", target=_aten.mm.default)):
        end, views = _seen_by(product)
        term = _term(end, product) or _term_of_pieces(module, end, product, constants)
        if term is None:
            continue
        vector, total = term
        with graph.inserting_before(total):
            new = graph.call_function(_aten.addmm.default, (vector, *product.args))
            new.meta["val"] = product.meta["val"]
            for view in views:
                target: Any = view.target
                seen = graph.call_function(target, (new, *view.args[1:]), view.kwargs)
                seen.meta["val"] = view.meta["val"]
                new = seen
        if total.target is _aten.add.Tensor:
            total.replace_all_uses_with(new)
        else:
            total.update_arg(0, new)
        count += 1
    graph.eliminate_dead_code()
    graph.lint()
    module.recompile()
    return count


def _seen_by(product: Node) -> tuple[Node, list[Node]]:
    """The only reader of a product, behind views that nothing else reads and that leave its columns
    what they are.
    """
    views: list[Node] = []
    at = product
    while len(at.users) == 1:
        (reader,) = at.users
        if reader.op != "call_function" or reader.target not in _VIEWS:
            return reader, views
        if reader.meta["val"].shape[-1] != product.meta["val"].shape[-1]:
            return reader, views
        views.append(reader)
        at = reader
    return at, views


def _term(end: Node, product: Node) -> tuple[Node, Node] | None:
    """A vector that is added to each row, and the sum."""
    if not _is_sum(end):
        return None
    own: Any
    other: Any
    for own, other in (end.args, end.args[::-1]):
        are_nodes = isinstance(own, Node) and isinstance(other, Node)
        if are_nodes and _is_of(own, product) and _is_vector(other, product.meta["val"]):
            return other, end
    return None


def _is_of(node: Node, product: Node) -> bool:
    while node is not product and node.op == "call_function" and node.target in _VIEWS:
        (node,) = node.all_input_nodes
    return node is product


def _term_of_pieces(
    module: GraphModule, split: Node, product: Node, constants: Mapping[str, torch.Tensor]
) -> tuple[Node, Node] | None:
    """The vectors of all pieces that a product's columns are split into as one, and the split; the
    sums are gone then.
    """
    arguments: tuple[Any, ...] = (*split.args, 0)
    value = product.meta["val"]
    if split.target is not _aten.split_with_sizes.default or not _is_of(arguments[0], product):
        return None
    rank = arguments[0].meta["val"].dim()
    pieces: list[Any] = sorted(split.users, key=lambda n: n.args[1])
    if arguments[2] % rank != rank - 1 or len(pieces) != len(arguments[1]):
        return None
    sums: list[Node] = []
    vectors: list[torch.Tensor] = []
    for piece in pieces:
        (total, *more) = piece.users
        if more or not _is_sum(total):
            return None
        other: Any = total.args[1] if total.args[0] is piece else total.args[0]
        vector = _constant(module, other, constants)
        width = piece.meta["val"].shape[-1]
        if vector is None or vector.shape != (width,) or vector.dtype != value.dtype:
            return None
        sums.append(total)
        vectors.append(vector)
    name = f"terms_of_{product.name}"
    module.register_buffer(name, torch.cat(vectors))
    with module.graph.inserting_before(split):
        held = module.graph.get_attr(name)
    held.meta["val"] = module.get_buffer(name)
    for piece, total in zip(pieces, sums, strict=True):
        total.replace_all_uses_with(piece)
    return held, split


def _is_sum(node: Node) -> bool:
    """Whether it is the sum of two tensors."""
    is_sum = node.op == "call_function" and node.target is _aten.add.Tensor
    return is_sum and len(node.args) == 2 and not node.kwargs


def _is_vector(node: Node, product: torch.Tensor) -> bool:
    value = node.meta.get("val")
    return (
        isinstance(value, torch.Tensor)
        and value.shape == (product.shape[1],)
        and value.dtype == product.dtype
    )


def _constant(
    module: GraphModule, node: Any, constants: Mapping[str, torch.Tensor]
) -> torch.Tensor | None:
    if not isinstance(node, Node):
        return None
    if node.op == "placeholder":
        return constants.get(str(node.target), constants.get(node.name))
    if node.op != "get_attr":
        return None
    value: Any = module
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value.detach() if isinstance(value, torch.Tensor) else None
