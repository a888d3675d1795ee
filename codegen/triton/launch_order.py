"""Kernels that start before the one in front of them has ended (sm_90 and later).

The launch option ``start early`` of a kernel that follows another block graph: the GPU may place
its blocks as soon as all blocks of the kernel before have come to their last stores (programmatic
dependent launch). It computes positions and loads inputs of the program, and waits for all of the
other kernel where it first touches what kernels write. So a launch costs no gap between the two.

Inputs may be read before the wait: the first kernel of a plan is launched in the plain way, after
everything that wrote them, and each later kernel waits for the one before it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.ugraph.plan import Plan
from mirage_py.ugraph.ugraph import BlockGraph

START = "start"
EARLY = "early"
# The first compute capability that can.
DEPENDENT_LAUNCH = 90


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """How a kernel's start and its neighbours' are tied."""

    starts_early: bool = False
    lets_next_start: bool = False


ALONE = LaunchOrder()


def launch_orders(plan: Plan) -> tuple[LaunchOrder, ...]:
    """For each kernel of the plan, library calls too.

    The option is without effect where the step before is no block graph: a library call, or a
    tensor that is made zero for this kernel to add to.
    """
    kernels = plan.ugraph.kernels
    early = [
        number > 0
        and options.flag(START) == EARLY
        and isinstance(kernel, BlockGraph)
        and isinstance(kernels[number - 1], BlockGraph)
        and not kernel.added_tensors
        for number, (kernel, options) in enumerate(zip(kernels, plan.options, strict=True))
    ]
    return tuple(map(LaunchOrder, early, [*early[1:], False]))
