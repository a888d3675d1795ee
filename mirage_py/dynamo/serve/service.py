"""The server of a region: a kernel and its reason, and a row of the region's dispatch table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from mirage_py.dynamo.regions.region_program import RegionProgram
from mirage_py.reasons import Reason, Served, Server
from mirage_py.ugraph.ir.plan import Plan

Value = torch.Tensor | int
# From a program's inputs to its outputs, a tuple for several.
Kernel = Callable[..., "torch.Tensor | tuple[torch.Tensor, ...]"]


@dataclass(frozen=True, slots=True)
class Service:
    """A ``kernel`` that serves a program, or None for the region's own operators, and why; ``link``
    is its plan for a chain. A kernel for many sizes may have a ``validity``: for which it is right.
    Where it ``places`` results, kernel and link are placed plans (ugraph/rewrite/placements.py),
    called by ``run_in_place``.
    """

    kernel: Kernel | None
    why: Reason
    by: Server = Server.EAGER
    link: Plan | None = None
    places: bool = False

    def __str__(self) -> str:
        return str(Served(self.by, self.why))


# (the program, the region's own code as a Kernel) -> what serves it.
RegionServer = Callable[[RegionProgram, Kernel], Service]


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of a region's dispatch table: what serves inputs of some sizes and layouts, or the
    number of the node in the region's graph that was ``refused``, without which others may be in a
    program.
    """

    signature: str
    served: Service
    program: RegionProgram | None = None
    refused: int | None = None
