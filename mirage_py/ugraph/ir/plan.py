"""A plan: a µGraph with every tile a number, and how each of its kernels is launched."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mirage_py.ugraph.ir.ugraph import UGraph


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """``num_stages`` is the depth of each loop's software pipeline, one entry per loop in order.

    ``flags`` are named choices of a back end, sorted, each with its value as text.
    """

    num_warps: int = 4
    num_stages: tuple[int, ...] = ()
    flags: tuple[tuple[str, str], ...] = field(default=())

    def flag(self, name: str, default: str = "") -> str:
        """The value of a flag."""
        # Ranking asks millions of times, of few flags.
        for flag, value in self.flags:
            if flag == name:
                return value
        return default

    def with_flag(self, name: str, value: str) -> LaunchOptions:
        """The options with a flag at a value; the empty value takes it away."""
        flags = {**dict(self.flags), name: value}
        return replace(self, flags=tuple(sorted((n, v) for n, v in flags.items() if v)))


@dataclass(frozen=True, slots=True)
class Plan:
    """What is emitted, compiled and measured; ``options`` has one entry per kernel."""

    ugraph: UGraph
    options: tuple[LaunchOptions, ...]
    backend: str = "triton"
