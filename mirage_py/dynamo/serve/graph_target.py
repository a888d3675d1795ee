"""The target of a graph: the one that was named, or this machine's."""

from __future__ import annotations

from mirage_py.targets import Target
from mirage_py.targets import target as target_named

_DEFAULT = "h200"


def graph_target(name: str) -> Target:
    """The target of that name; for ``auto`` this machine's GPU, or an H200 where there is none.

    Raises InputError for a name that there is not.
    """
    if name != "auto":
        return target_named(name)
    from mirage_py.runtime.env.environment import detect_target

    return detect_target() or target_named(_DEFAULT)
