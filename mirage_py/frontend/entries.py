"""An entry of the dispatch table: a signature, its kernel, and whether that is still valid."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from mirage_py.frontend.refused_functions import RefusedFunction
from mirage_py.frontend.searches import Kernel
from mirage_py.frontend.torch.guards.call_key import tensor_key
from mirage_py.frontend.torch.trace import TracedCall
from mirage_py.reasons import Served, Server


@dataclass(frozen=True, slots=True)
class Entry:
    """What serves a signature; ``kernel`` is None where that is the function itself, or what runs
    ``instead`` of it. ``decided`` says what and why, unless that is for ``instead`` to say.
    ``direct`` takes the arguments of a call as they are, where the kernel is the function itself or
    torch.compile's: what is between them and a program's inputs would cost more than it.
    """

    signature: str
    decided: Served
    kernel: Kernel | None = None
    traced: TracedCall | None = None
    captured: tuple[Hashable, ...] = ()
    instead: RefusedFunction | None = None
    direct: Callable[..., Any] | None = None

    @property
    def served(self) -> Served:
        """What serves it, and why."""
        return self.decided if self.instead is None else self.instead.served

    @property
    def source(self) -> str:
        """Where it came from, in a word."""
        if self.served.by not in (Server.OURS, Server.IN_PARTS):
            return "fallback"
        return str(getattr(self.kernel, "source", "searched"))

    def __str__(self) -> str:
        source = getattr(self.kernel, "source", "")
        return f"({self.signature}) -> {self.served}{f' ({source})' if source else ''}"


def is_current(entry: Entry) -> bool:
    """Whether what the function takes from elsewhere is what it was, and tensors look alike."""
    if entry.traced is None:
        return True
    if not entry.traced.is_current():
        return False
    if not entry.captured:
        return True
    try:
        found = tuple(tensor_key(origin.fetch()) for origin in entry.traced.elsewhere)
    except (AttributeError, LookupError, TypeError):  # it is gone, or no tensor any more
        return False
    return found == entry.captured
