"""Numbers among the arguments of calls that change from call to call.

A number is part of a program. One that is another in every call would have a search in every call;
after some programs that differ in numbers alone the calls are served without any.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from mirage_py.frontend.torch.guards.call_key import Call, call_key

# So many programs are made for calls that differ in numbers alone. Layers that are told which of
# them they are share one program, however many there are.
MOST_PROGRAMS = 8


def key_without_numbers(call: Call) -> Hashable | None:
    """Equal for calls that differ in their numbers alone; None where there are none.

    Raises TypeError where an argument has no hash.
    """
    if not any(type(leaf) in (int, float) for leaf in call.leaves):
        return None
    # A type is no argument that a function of tensors is given beside numbers.
    kinds = tuple(type(x) if type(x) in (int, float) else x for x in call.leaves)
    return call_key(replace(call, leaves=kinds))


class ChangingNumbers:
    """The programs that were made for calls that differ in numbers alone."""

    def __init__(self) -> None:
        self._programs: dict[Hashable, dict[Hashable, None]] = {}

    def are_many(self, key: Hashable | None) -> bool:
        """Whether no further program is to be made for calls of this key without numbers."""
        return key is not None and len(self._programs.get(key, ())) >= MOST_PROGRAMS

    def add(self, key: Hashable | None, program: Hashable) -> None:
        """Note the program, or what stands for one, of a call of this key."""
        if key is not None:
            self._programs.setdefault(key, {})[program] = None
