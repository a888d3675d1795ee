"""A plan: a µGraph with every tile a number, and how each of its kernels is launched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mirage_py.display import Displayed
from mirage_py.ugraph.ir.launch_choices import NextStart
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.program import listed
from mirage_py.ugraph.ir.ugraph import UGraph


@dataclass(frozen=True, slots=True, repr=False)
class Plan(Displayed):
    """What is emitted, compiled and measured; ``options`` has one entry per kernel."""

    ugraph: UGraph
    options: tuple[LaunchConfig, ...]
    backend: str = "triton"

    def __repr__(self) -> str:
        return f"<Plan by {self.backend}: {self.ugraph!r} with {listed(self.options)}>"

    @property
    def torch_steps(self) -> tuple[str, ...]:
        """Names of the kernels that PyTorch computes: parts of a program that none of ours does."""
        return tuple(k.name for k in self.ugraph.kernels if getattr(k, "body", None))


def chained(
    plan: Plan, following: NextStart = NextStart.STORES, constants: Sequence[str] = ()
) -> Plan:
    """The plan for a place between other kernels that start early; nothing there writes its inputs
    ``constants``.
    """
    told = tuple(sorted(constants))
    options = tuple(
        replace(o, early_start=True, next_start=following, constants=told) for o in plan.options
    )
    return replace(plan, options=options)
