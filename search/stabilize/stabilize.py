"""The stabiliser: every exp whose scale cancels is shifted by a (running) maximum.

In the search a softmax is exp(x) / sum(exp(x)). Here each such exp becomes exp(x - m). Multiplying
exp(x) by any factor exp(-m) that the later reductions do not see scales every value downstream by a
known power of that factor, its degree. If the degree of every output is 0 the factor cancels and
any m is legal, so m may be the maximum. Inside a loop over the reduced dimension m is the running
maximum, and the sums that carry a degree are rescaled when it moves (Milakov and Gimelshein 2018;
the FlashAttention recurrence follows). Kernels that see one split each have a maximum of their own,
and the kernel that combines the splits rescales them to a common one. The field test of the result
uses a free random m: it is verified, not assumed.

Exponentials that are added to each other, sum(exp(A)) + exp(C), are one group. Each is shifted by
its own maximum, so that loops and splits are as for one alone; where they meet, what carries these
is multiplied to the larger of them.

The steps: ``shift_groups`` (which exps, what degrees), ``shift_plan`` (where maxima are computed,
stored and read) with ``shift_flow`` (what values carry), ``shift_masks`` (what maxima may leave
out), ``shift_rewrite`` (one kernel).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count

from mirage_py.search.clusters.clusters import ends_in_cluster, in_a_cluster, without_cluster
from mirage_py.search.stabilize.shift_flow import Shift, dims_of
from mirage_py.search.stabilize.shift_groups import ConflictError, GroupAnalysis, Scales
from mirage_py.search.stabilize.shift_masks import Masks, common_masks, masks_of_program
from mirage_py.search.stabilize.shift_plan import ShiftPlan, plan_shifts
from mirage_py.search.stabilize.shift_rewrite import ShiftTensors, with_shifts
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel, LibraryCall, UGraph
from mirage_py.ugraph.rewrite.degrees import joined


@dataclass(frozen=True, slots=True)
class Stabilized:
    """``faults`` say why it may overflow, or vanish, where another arrangement would not."""

    ugraph: UGraph
    faults: tuple[str, ...]


def stabilized(ugraph: UGraph) -> Stabilized:
    """The stabilised µGraph, and what is not safe about it."""
    if not ends_in_cluster(ugraph):
        return _stabilized(ugraph)
    # Splits have maxima of their own, which the last section combines: so does the second of two
    # kernels.
    found = _stabilized(without_cluster(ugraph))
    joined = in_a_cluster(found.ugraph)
    if joined is None:
        return Stabilized(ugraph, (*found.faults, "its maxima do not come together in a cluster"))
    return Stabilized(joined, found.faults)


def _stabilized(ugraph: UGraph) -> Stabilized:
    analysis = GroupAnalysis(ugraph)
    # The group of each exponential: itself, until it is added to another one.
    groups = {exp: exp for exp in analysis.dims}
    faults: list[str] = []
    if analysis.all_cancel:
        faults.extend(
            f"library call {k.name} is an exp that is not shifted"
            for k in ugraph.kernels
            if isinstance(k, LibraryCall) and k.op == "exp"
        )
    while groups:
        try:
            scales = analysis.scales(groups)
            shifted = {
                exp: group
                for exp, group in groups.items()
                if len(members := scales.groups[group]) > 1
                or any(k.reduced[m] for k in scales.kernels for m in members)
            }
            if len(shifted) < len(groups):  # nothing to shift them by
                groups = shifted
                continue
            plan = plan_shifts(ugraph, scales, analysis.dims)
            masks = common_masks(ugraph, scales, analysis.numbers)
            if masks.lack(masks_of_program(ugraph.program, analysis.program_numbers)):
                faults.append("an exponential is not masked before it is added to others")
            return Stabilized(_shifted(analysis, scales, plan, masks), tuple(faults))
        except ConflictError as conflict:
            if conflict.can_join:
                groups = {exp: joined(group, conflict.groups) for exp, group in groups.items()}
                continue
            could_be = analysis.all_cancel or any(
                exp in analysis.cancelling for exp, g in groups.items() if g in conflict.groups
            )
            groups = {exp: g for exp, g in groups.items() if g not in conflict.groups}
            if conflict.is_structural or could_be:
                faults.append(conflict.reason)
    return Stabilized(ugraph, tuple(faults))


def _shifted(analysis: GroupAnalysis, scales: Scales, plan: ShiftPlan, masks: Masks) -> UGraph:
    ugraph = analysis.ugraph
    names = _names(ugraph, plan)
    kernels: list[Kernel] = []
    for number, kernel in enumerate(ugraph.kernels):
        if isinstance(kernel, BlockGraph) and plan.kernels[number].flows:
            written = tuple(s for s, maker in plan.stored.items() if maker == number)
            kernel = with_shifts(
                kernel,
                scales.kernels[number],
                plan.kernels[number],
                ShiftTensors(names, written, tuple(ugraph.program.sizes)),
                masks,
                analysis.numbers[number],
            )
        kernels.append(kernel)
    sizes = ugraph.program.sizes
    added = tuple(
        Tensor(name, tuple(sizes[d] for d in ugraph.program.order(dims_of(shift))), F32)
        for shift, name in names.items()
    )
    return replace(ugraph, kernels=tuple(kernels), intermediates=(*ugraph.intermediates, *added))


def _names(ugraph: UGraph, plan: ShiftPlan) -> Mapping[Shift, str]:
    """A free name for each shift that goes through memory."""
    taken = (*ugraph.tensors, *ugraph.program.sizes)
    candidates = (f"shift{number}" for number in count())
    return dict(zip(plan.stored, (c for c in candidates if c not in taken), strict=False))
