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

With ``next early`` a last kernel that waits so lets whatever comes next start in its turn, once it
has waited itself: that may be anybody's kernel, which knows not to read what this one writes, but
takes what lies further back for ended. Kernels that do not ask for it start when this one has
ended. Blocks that are placed while others work lie where those are not, which is not where they
work best: LoRA's kernels by hand took 0.1 to 1 us more with it (in front of the wait).
"""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.ugraph.plan import Plan
from mirage_py.ugraph.ugraph import BlockGraph, UGraph

START = "start"
NEXT = "next"
EARLY = "early"
# The first compute capability that can.
DEPENDENT_LAUNCH = 90


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """How a kernel's start and its neighbours' are tied: the next one is of the same plan, others
    are whatever follows the plan.
    """

    starts_early: bool = False
    lets_next_start: bool = False
    lets_others_start: bool = False


ALONE = LaunchOrder()


def launch_orders(plan: Plan) -> tuple[LaunchOrder, ...]:
    """For each kernel of the plan, library calls too.

    The option is without effect where the step before is no block graph: a library call, or a
    tensor that is made zero for this kernel to add to.
    """
    may = may_start_early(plan.ugraph, waits_first=plan.backend == "cuda")
    early = [m and o.flag(START) == EARLY for m, o in zip(may, plan.options, strict=True)]
    asked = plan.backend == "cuda" and plan.options[-1].flag(NEXT) == EARLY
    last = [False] * (len(early) - 1) + [early[-1] and asked]
    return tuple(map(LaunchOrder, early, [*early[1:], False], last))


def may_start_early(ugraph: UGraph, *, waits_first: bool) -> tuple[bool, ...]:
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
