"""Composites whose convolutions are our own matmuls or sums, to compare with library calls."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from mirage_py.codegen.cuda.windows.shares import window_dims
from mirage_py.errors import UnsupportedError, VerificationError
from mirage_py.pipeline.joined.direct_convolutions import DirectPartition, direct_convolutions
from mirage_py.pipeline.joined.joined_convolutions import joined_convolutions
from mirage_py.pipeline.joined.product_times import by_times
from mirage_py.pipeline.partition.alike_parts import alike, renamed
from mirage_py.pipeline.partition.compose import compose
from mirage_py.pipeline.partition.composites import Composite
from mirage_py.pipeline.partition.part_choice import Chosen, Picked, RankPart, choose
from mirage_py.pipeline.partition.partition import Partition
from mirage_py.pipeline.selection.request import Request
from mirage_py.pipeline.selection.time_budget import TimeBudget
from mirage_py.runtime.base.emission import BACKENDS
from mirage_py.search.enumerate.search import SearchLimits
from mirage_py.targets import Target
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph

# Tilings of a matmul that are timed: of the measured ones, the first three held the fastest.
_TILINGS = 3
# Besides these, tilings of persistent kernels.
_STAYING = 1
# A convolution fills the GPU without split reductions, which take long to verify.
_LIMITS = SearchLimits(max_kernels=1)


def joined_composites(
    whole: Partition,
    chosen: Sequence[Chosen],
    rank: RankPart,
    request: Request,
    target: Target,
    *,
    measure: bool,
) -> list[Composite]:
    """For each back end a few composites with fused convolutions, the most promising first; empty
    if no convolution can be fused. Parts that stay as they are keep the plans ``chosen``.
    """
    theirs = {
        p.renamed("").digest: [c] for p, c in zip(whole.parts, chosen, strict=True) if c.picked
    }
    direct = direct_convolutions(whole)
    # A lone convolution has the same digest as the library's part, whose plan it must not have.
    ours = {direct.partition.parts[n].renamed("").digest for n in direct.ours}
    searched: dict[str, Sequence[Chosen]] = {}
    end = TimeBudget(request.budget).end
    made: dict[Plan, Composite] = {}
    for found, is_direct in _partitions(whole, direct):
        ways: list[Sequence[Chosen]] = []
        for part, of in zip(found.parts, alike(found.parts), strict=True):
            key = part.renamed("").digest
            known = searched if is_direct and key in ours else {**searched, **theirs}
            if key in known:
                way = known[key]
            elif of < len(ways):
                way = [renamed(c, found.parts[of], part, target) for c in ways[of]]
            else:
                left = None if end is None else max(0.0, end - time.monotonic())
                named = request.named(part.name)
                asked = replace(named, limits=_LIMITS, journal=None, budget=left)
                way = (
                    _likeliest(part, rank, asked, target)
                    if measure
                    else [choose(part, rank, asked, target, measure=False, by_library=False)]
                )
            if key not in known:
                searched[key] = way
            ways.append(way)
            if not any(c.picked for c in way):
                break
        else:
            for composite in _of_ways(found, ways):
                made.setdefault(composite.plan, composite)
    return sorted(made.values(), key=lambda c: c.time_us)


def _partitions(whole: Partition, direct: DirectPartition) -> Iterator[tuple[Partition, bool]]:
    """The partitions to try, and whether convolutions of few channels are our sums in it: beside
    these, or beside the library's calls, the others are matmuls of ours.
    """
    for base in [direct.partition, whole] if direct.ours else [whole]:
        is_direct = base is not whole
        joined = joined_convolutions(base)
        if joined is not None:
            yield joined, is_direct
        if is_direct:
            yield base, is_direct


def _of_ways(found: Partition, ways: Sequence[Sequence[Chosen]]) -> Iterator[Composite]:
    """Composites of the parts' most promising plans, then of their next ones."""
    for n in range(max(map(len, ways))):
        each = [way[min(n, len(way) - 1)] for way in ways]
        for backend in BACKENDS:
            if all(backend in c.picked for c in each):
                picked = [c.picked[backend] for c in each]
                plan = compose(found, [p.plan for p in picked])
                yield Composite(plan, found, each, sum(p.time_us for p in picked))


def _likeliest(part: Program, rank: RankPart, request: Request, target: Target) -> list[Chosen]:
    """The most promising plans by corrected times, each with other tiles. Composites check and time
    them, because PyTorch has no counterpart of the part to compare with.
    """
    try:
        ranking = rank(part, target, request)
    except (UnsupportedError, VerificationError):
        return []
    is_product = any(n.op == "matmul" for n in part.nodes)
    picked: dict[str, dict[tuple[bool, Hashable], Picked]] = {}
    for instance, time_us in by_times(ranking.instances):
        plan = instance.plan
        of_backend = picked.setdefault(plan.backend, {})
        stays = any(o.persistent_blocks for o in plan.options)
        of_kind = _STAYING if stays else _TILINGS
        most = of_kind if is_product or _is_over_windows(plan) else 1
        key = stays, instance.tiling
        if key not in of_backend and sum(s == stays for s, _ in of_backend) < most:
            with contextlib.suppress(VerificationError):
                evidence = ranking.evidence(plan, 0.0, 0.0, "")
                of_backend[key] = Picked(plan, time_us, evidence)
    found = []
    for n in range(max(map(len, picked.values()), default=0)):
        nth = {b: list(p.values())[min(n, len(p) - 1)] for b, p in picked.items() if p}
        found.append(Chosen(ranking.predicted() if n == 0 else None, nth, is_ours=True))
    return found


def _is_over_windows(plan: Plan) -> bool:
    """Whether it is a CUDA kernel over windows."""
    ugraph = plan.ugraph
    blocks = (k for k in ugraph.kernels if isinstance(k, BlockGraph))
    is_cuda = plan.backend == "cuda"
    return is_cuda and any(window_dims(b, ugraph.scope.sizes, ugraph.tensors) for b in blocks)
