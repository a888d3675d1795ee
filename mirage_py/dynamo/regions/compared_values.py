"""Values that a gradient compares bit by bit, which the backward graph must not compute anew."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from mirage_py.dynamo.regions.nodes import base_name

_VIEWS = ("view", "_unsafe_view", "reshape", "expand", "unsqueeze", "squeeze", "permute", "alias")


def keep_compared(joint: GraphModule) -> None:
    """Have the partition of a joint graph save what is compared for equality.

    The gradient of a maximum goes to where ``x == max(x)``. Computed a second time, in a region
    that is cut otherwise, x is rounded otherwise: nothing is equal, and 0 is divided by 0.
    """
    for node in joint.graph.find_nodes(op="call_function", target=torch.ops.aten.eq.Tensor):
        for operand in node.all_input_nodes:
            _whole(operand).meta["recompute"] = CheckpointPolicy.MUST_SAVE


def _whole(node: Node) -> Node:
    while node.op == "call_function" and base_name(node) in _VIEWS:
        node = node.all_input_nodes[0]
    return node
