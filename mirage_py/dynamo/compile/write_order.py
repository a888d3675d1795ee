"""The order of a region that writes in place and of what reads there, kept through Inductor.

Inductor's pass ``reorder_for_locality`` moves an operator to its first reader, one that writes to
its inputs too. What reads the memory that it has written, and nothing that it returns, would then
come first.
"""

from __future__ import annotations

from typing import Any

from torch.fx import Graph, Node

from mirage_py.dynamo.serve.region_op import calls_region


def settings_that_keep_order(graph: Graph) -> dict[str, Any]:
    """Settings of Inductor for a graph with calls of regions."""
    return {"reorder_for_locality": False} if any(map(_is_read_apart, graph.nodes)) else {}


def _is_read_apart(node: Node) -> bool:
    """Whether it writes to inputs, and something behind it reads them that does not wait for it."""
    if node.op != "call_function" or not calls_region(node) or not node.users:
        return False
    schema = getattr(node.target, "_schema", None)
    arguments = () if schema is None else schema.arguments
    written = [
        given
        for given, argument in zip(node.args, arguments, strict=False)
        if isinstance(given, Node) and argument.alias_info is not None
    ]
    waiting = _behind([node])
    return any(reader > node and reader not in waiting for reader in _behind(written))


def _behind(nodes: list[Node]) -> dict[Node, None]:
    """The nodes, and all that is made of them."""
    found: dict[Node, None] = {}
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if node not in found and node.op != "output":
            found[node] = None
            todo += node.users
    return found
