"""Decided masks: conditions that hold everywhere, or nowhere; and the lowest masks.

torch writes an attention to everything as positions that are not negative.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.ugraph.ir.index import Predicate
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.predicates import decided

# In a mask that is ``torch.finfo(dtype).min`` of float32 or bfloat16, below every logit.
LOW_MASK = -1e38


def without_mask(nodes: Sequence[Node], op: str, args: Sequence[int]) -> int | None:
    """The operand that equals ``op``, because its mask operand is decided; None if none does.

    It has every dimension of the result: a sum over a mask counts the points of its dimensions.
    """
    if op == "mul":
        left, right = args
        kept = left if _truth(nodes[right]) else right if _truth(nodes[left]) else None
    elif op == "where":
        truth = _truth(nodes[args[0]])
        kept = None if truth is None else args[1] if truth else args[2]
    else:
        return None
    dims = {d for a in args for d in nodes[a].dims}
    return kept if kept is not None and dims == set(nodes[kept].dims) else None


def _truth(node: Node) -> bool | None:
    """Whether a mask holds everywhere, or nowhere; None: neither, or it is no mask."""
    return decided(node.attr) if isinstance(node.attr, Predicate) else None
