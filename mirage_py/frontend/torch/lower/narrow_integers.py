"""Narrow integers that wrap around where nobody sees it: of a word its low bits are taken.

``(words >> shifts).to(torch.int8) & 15`` has the same bits with and without the cast.
"""

from __future__ import annotations

import torch

from mirage_py.frontend.torch.lower.refusals import base_name

# What hands on elements as they are.
_HANDS_ON = (
    "view", "_unsafe_view", "reshape", "flatten", "expand", "unsqueeze", "squeeze", "permute",
    "transpose", "t", "clone", "contiguous", "alias", "slice", "select", "index", "index_select",
    "stack", "cat",
)  # fmt: skip
_MASKS = ("bitwise_and", "__and__")


def is_masked(node: torch.fx.Node) -> bool:
    """Whether all that is read of a result of narrow integers is low bits, by masks."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype.is_floating_point or not node.users:
        return False
    if value.dtype not in (torch.int8, torch.int16, torch.uint8):
        return False
    return all(_takes_low_bits(user, node, torch.iinfo(value.dtype).max) for user in node.users)


def _takes_low_bits(user: torch.fx.Node, node: torch.fx.Node, most: int) -> bool:
    name = base_name(str(user.target))
    if name in _MASKS:
        mask = user.args[1]
        return user.args[0] is node and isinstance(mask, int) and 0 <= mask <= most
    # As an index it would be a position.
    is_element = user.args[:1] == (node,) or name in ("stack", "cat")
    return name in _HANDS_ON and is_element and is_masked(user)
