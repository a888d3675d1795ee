"""From families to plans: parts, tiles, warps and stages that fit the target, ranked by the model.

A family with its numbers of parts fixed is a *form* of it. Forms are looked at in three steps, each
on fewer of them: a bound from below, a prediction with few launch options, all options.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mirage_py.errors import ScheduleError
from mirage_py.search.combine import combinations_of
from mirage_py.search.diversity import diverse
from mirage_py.search.instance import Instance, PlanEstimate
from mirage_py.search.kernel_choices import KernelRanker
from mirage_py.search.kinds import describe, kind_of
from mirage_py.search.parts import at_parts, part_choices, split_dims
from mirage_py.search.residency import in_cache
from mirage_py.targets import Target
from mirage_py.ugraph.plan import Plan
from mirage_py.ugraph.rewrite.split_dim import part_dim
from mirage_py.ugraph.threads import with_threads
from mirage_py.ugraph.ugraph import BlockGraph, UGraph

__all__ = ["Instance", "diverse", "instances", "rank"]

# Instances kept of each family, in multiples of what is asked for, before families compete.
_PER_FAMILY = 4
# Families that compete; the others' best instances are predicted to be slower.
_MAX_FAMILIES = 12


def instances(ugraph: UGraph, target: Target, limit: int) -> tuple[Instance, ...]:
    """The ``limit`` plans of a family that the cost model likes best, best first.

    Every number of parts that makes sense is tried of a split program. Raises ScheduleError where
    nothing fits, with the tightest limit.
    """
    ranker = KernelRanker(target)
    found = [i for form in _forms(ugraph) for i in _of_form(ugraph, form, target, ranker, limit)]
    if not found:
        names = " and ".join(k.name for k in ugraph.kernels)
        raise ScheduleError(
            f"no tiling of {names} fits {target.name}",
            where=ugraph.program.name,
            why=f"shared memory is {target.smem_per_block_bytes} bytes a block",
            repair="use smaller dimensions that stay whole in a block, or another target",
        )
    found.sort(key=lambda i: i.estimate.time_us)
    return tuple(found[:limit])


def rank(families: Sequence[UGraph], target: Target, limit: int) -> list[Instance]:
    """The best instances of the best families, best first, without near-copies.

    A family that fits nowhere is left out.
    """
    by_family: list[tuple[Instance, ...]] = []
    for family in families:
        try:
            by_family.append(instances(family, target, _PER_FAMILY * limit))
        except ScheduleError:
            continue
    by_family.sort(key=lambda found: found[0].estimate.time_us)
    pooled = [i for found in by_family[:_MAX_FAMILIES] for i in found]
    pooled.sort(key=lambda i: i.estimate.time_us)
    return [_with_thread_graphs(i) for i in diverse(pooled, limit)]


def _forms(ugraph: UGraph) -> list[UGraph]:
    return [at_parts(ugraph, parts) for parts in part_choices(ugraph.program)]


def _of_form(
    family: UGraph, form: UGraph, target: Target, ranker: KernelRanker, limit: int
) -> list[Instance]:
    parts = tuple(part_dim(d) for d in split_dims(form.program))
    cached = in_cache(form, target)
    ranked = [ranker.ranked(form, n, cached[n], parts) for n in range(len(form.kernels))]
    if not all(ranked):
        return []
    kind, name = kind_of(form), describe(form)
    found = []
    for combination in combinations_of(ranked, limit):
        choices = combination.choices
        ugraph = replace(form, kernels=tuple(c.kernel for c in choices))
        plan = Plan(ugraph, tuple(c.options for c in choices))
        predicted = PlanEstimate(tuple(c.estimate for c in choices))
        tiling = name, tuple(c.tiling for c in choices)
        found.append(Instance(family, plan, predicted, kind, name, tiling))
    return found


def _with_thread_graphs(instance: Instance) -> Instance:
    """The instance with the chains of values that stay in registers marked."""
    ugraph = instance.plan.ugraph
    kernels = tuple(with_threads(k) if isinstance(k, BlockGraph) else k for k in ugraph.kernels)
    return replace(instance, plan=replace(instance.plan, ugraph=replace(ugraph, kernels=kernels)))
