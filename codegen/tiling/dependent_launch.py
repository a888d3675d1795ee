"""Programmatic dependent launch (PDL, sm_90 and later): a kernel starts before the previous one
ends.

The launch option ``start early`` applies to a kernel that follows another block graph. The GPU may
start its blocks as soon as all blocks of the previous kernel have reached their last stores. It
computes positions and loads inputs of the program, and waits for the previous kernel where it first
touches what kernels write. So there is no launch gap between the two.

In Triton inputs may be read before the wait: the first kernel of a plan is launched normally, after
everything that wrote them, and each later kernel waits for the previous one. A CUDA kernel waits
before it reads anything, so the first one may use PDL too, after whatever kernel precedes the plan:
its blocks start when the blocks of that one have ended, not only after the GPU has flushed what
they wrote.

The last kernel of a plan triggers no dependent launch. Where the same plan runs repeatedly, as in a
benchmark, each run would start during the previous one and seem shorter; kernels of other code do
not use PDL.

Kernels of a *chain* (``next``) lie between others of ours, as the regions of a model do. There
the first kernel starts early and the last one triggers, too. Such a kernel

* waits before it reads or writes any tensor, inputs too: who is in front of it is not known;
* waits in every thread, on every path: it ends only after the kernel in front has ended, so all
  kernels in front have ended when one has waited, whoever of them started early;
* triggers after its wait: when a kernel starts, all but the one in front have ended. A kernel of
  other code that starts early behind it finds what it would find behind a kernel that was launched
  normally and triggers at its head;
* copies before its wait, past the L1, at most tiles of its ``constants``: inputs that were written
  before the kernel in front had started, and that it does not write.

In front of it may be any kernel: one that never triggers has ended when this one starts.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

# The first compute capability that can.
DEPENDENT_LAUNCH = 90


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """How a kernel's start and its neighbours' are tied. ``is_chained``: nothing is known of the
    kernels around the plan.
    """

    uses_pdl: bool = False
    triggers_next: bool = False
    is_chained: bool = False


ALONE = LaunchOrder()


def launch_orders(plan: Plan) -> tuple[LaunchOrder, ...]:
    """For each kernel of the plan, library calls too.

    The option is without effect where the step before is no block graph: a library call, or a
    tensor that is made zero for this kernel to add to.
    """
    chained = any(o.next_start for o in plan.options)
    may = can_use_pdl(plan.ugraph, waits_first=chained or plan.backend == "cuda")
    early = [m and o.early_start for m, o in zip(may, plan.options, strict=True)]
    triggers = [
        after or (o.next_start is not None and isinstance(kernel, BlockGraph))
        for after, o, kernel in zip(
            [*early[1:], False], plan.options, plan.ugraph.kernels, strict=True
        )
    ]
    return tuple(LaunchOrder(e, t, chained) for e, t in zip(early, triggers, strict=True))


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
