"""Side effects that a traced function must not have: writes to its arguments, results that are not
values.
"""

from __future__ import annotations

import torch

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch.capture.capture import Capture
from mirage_py.frontend.torch.guards.plain_values import is_plain
from mirage_py.frontend.torch.guards.state import State


def changes_state(what: str, where: str) -> UnsupportedError:
    """The error of a function that leaves something behind; ``what`` it changes."""
    return UnsupportedError(
        f"the function changes {what}",
        where=where,
        why="a kernel computes results and changes nothing; it was put back as it was",
        repair="return the new value, and keep it outside",
    )


def check_results(captured: Capture, state: State, where: str) -> None:
    """UnsupportedError where a result is an object: each call would return one and the same, and
    the tensors in it would be without data.
    """
    known = [id(value) for holder in state.holders for value in holder.content]
    for leaf in captured.results:
        if isinstance(leaf, torch.fx.Node) or is_plain(leaf) or id(leaf) in known:
            continue
        raise UnsupportedError(
            f"a result is of type {type(leaf).__name__}",
            where=where,
            why="what a call computes and returns are tensors, in tuples, lists and dicts",
            repair="return the tensors, and make the object of them outside",
        )
