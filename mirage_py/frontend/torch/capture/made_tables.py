"""Numbers that each call makes of numbers alone, as buckets of distances: where no kernel computes
them torch does, once, and they are a table that kernels read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch.fx import Node

from mirage_py.frontend.torch.capture.capture import Capture

# Elements of a table, and of each value on the way to it.
_MOST = 1 << 24


def with_tables(
    captured: Capture, refused: Node, literals: Mapping[Node, torch.Tensor]
) -> Capture | None:
    """The capture with tables for all that ``refused`` is, reads or leads to and that no tensor
    given to the function goes into; ``literals`` are numbers that it has written down. None where
    there is nothing of the kind.
    """
    made = _made(captured, literals)
    begun = [n for n in (refused, *refused.all_input_nodes) if n in made]
    tables: dict[Node, torch.Tensor] = {}
    for node in _last(begun, made):
        found = _computed(node, literals)
        if found is None:
            return None
        tables[node] = found
    if not tables:
        return None
    graph = captured.graph
    constants, new = dict(captured.constants), []
    for node, table in tables.items():
        with graph.inserting_after(graph.find_nodes(op="placeholder")[-1]):
            place = graph.placeholder("table")
        place.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(place)
        constants[place] = table
        new.append(place)
    graph.eliminate_dead_code()
    return replace(captured, constants=constants, tables=(*captured.tables, *new))


def _made(captured: Capture, literals: Mapping[Node, torch.Tensor]) -> dict[Node, None]:
    """Operators whose results are the same in each call."""
    found = dict.fromkeys(literals)
    for node in captured.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):  # noqa: SLF001
            continue
        is_drawn = torch.Tag.nondeterministic_seeded in node.target.tags
        is_empty = "empty" in str(node.target)  # memory that is filled later holds anything
        if is_drawn or is_empty or not _is_small(node):
            continue
        if all(n in found for n in node.all_input_nodes):
            found[node] = None
    return {node: None for node in found if node.op == "call_function"}


def _is_small(node: Node) -> bool:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or any(type(n) is not int for n in value.shape):
        return False
    return 0 < math.prod(value.shape) <= _MOST


def _last(begun: list[Node], made: Mapping[Node, None]) -> list[Node]:
    """The last values of this kind on all ways from those: what others read of them."""
    seen: dict[Node, None] = {}
    todo = list(begun)
    while todo:
        node = todo.pop()
        if node not in seen:
            seen[node] = None
            todo += [user for user in node.users if user in made]
    return [n for n in seen if any(user not in made and user.op != "output" for user in n.users)]


def _computed(node: Node, literals: Mapping[Node, torch.Tensor]) -> torch.Tensor | None:
    """What torch computes, where and as the function has it."""
    values = dict(literals)

    def value(node: Node) -> torch.Tensor:
        if node not in values:
            args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), value)
            assert callable(node.target)
            values[node] = node.target(*args, **kwargs)
        return values[node]

    try:
        with torch.no_grad():
            return value(node).contiguous()
    except (RuntimeError, NotImplementedError):  # on a device that is not there
        return None
