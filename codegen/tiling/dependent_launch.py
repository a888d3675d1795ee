"""Kernels that start before the one in front of them has ended (sm_90 and later).

The launch option ``start early`` of a kernel that follows another block graph: the GPU may place
its blocks as soon as all blocks of the kernel before have come to their last stores (programmatic
dependent launch). It computes positions and loads inputs of the program, and waits for all of the
other kernel where it first touches what kernels write. So a launch costs no gap between the two.

In Triton inputs may be read before the wait: the first kernel of a plan is launched in the plain
way, after everything that wrote them, and each later kernel waits for the one before it. A CUDA
kernel waits before it reads anything, so there the first one may start early too, behind whatever
kernel lies in front of the plan: its blocks are placed when those of that one have ended, and not
only when the GPU has put away all that they wrote.

The last kernel of a plan lets nobody start. Where the same plan runs again and again, as under a
clock, each run would begin in the one before, and seem shorter; other people's kernels do not ask.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

START = "start"
EARLY = "early"
# The first compute capability that can.
DEPENDENT_LAUNCH = 90


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """How a kernel's start and its neighbours' are tied."""

    uses_pdl: bool = False
    triggers_next: bool = False


ALONE = LaunchOrder()


def launch_orders(plan: Plan) -> tuple[LaunchOrder, ...]:
    """For each kernel of the plan, library calls too.

    The option is without effect where the step before is no block graph: a library call, or a
    tensor that is made zero for this kernel to add to.
    """
    may = can_use_pdl(plan.ugraph, waits_first=plan.backend == "cuda")
    early = [m and o.flag(START) == EARLY for m, o in zip(may, plan.options, strict=True)]
    return tuple(map(LaunchOrder, early, [*early[1:], False]))


def can_use_pdl(ugraph: UGraph, *, waits_first: bool) -> tuple[bool, ...]:
    """For each kernel whether it may. ``waits_first``: kernels read nothing before they wait, so
    the first one may too.
    """
    kernels = ugraph.kernels
    return tuple(
        isinstance(kernel, BlockGraph)
        and not kernel.added_tensors
        and (isinstance(kernels[number - 1], BlockGraph) if number else waits_first)
        for number, kernel in enumerate(kernels)
    )
