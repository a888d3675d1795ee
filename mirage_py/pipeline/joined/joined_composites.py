"""Composites whose convolutions are matmuls of ours, beside those with calls of the library."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Sequence
from dataclasses import replace

from mirage_py.errors import UnsupportedError, VerificationError
from mirage_py.pipeline.joined.joined_convolutions import joined_convolutions
from mirage_py.pipeline.joined.product_times import by_times
from mirage_py.pipeline.partition.compose import compose
from mirage_py.pipeline.partition.composites import Composite
from mirage_py.pipeline.partition.part_choice import Chosen, Picked, RankPart, choose
from mirage_py.pipeline.partition.partition import Partition
from mirage_py.pipeline.selection.request import Request
from mirage_py.runtime.base.emission import BACKENDS
from mirage_py.search.enumerate.search import SearchLimits
from mirage_py.targets import Target
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program

# Tilings of a matmul that are raced: of those that were measured three held the fastest.
_TILINGS = 3
# Beside them of persistent kernels.
_STAYING = 1
# A convolution fills the GPU without split sums, which take long to be verified.
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
    """For each back end a few composites in which convolutions are in the parts behind them, the
    likeliest first; none where none can be. Parts that stay as they are have the plans ``chosen``.
    """
    found = joined_convolutions(whole)
    if found is None:
        return []
    known = {p.renamed("").digest: c for p, c in zip(whole.parts, chosen, strict=True)}
    ways: list[list[Chosen]] = []
    for part in found.parts:
        same = known.get(part.renamed("").digest)
        is_known = same is not None and bool(same.picked)
        if same is not None and is_known:
            ways.append([same])
            continue
        asked = replace(request.named(part.name), limits=_LIMITS, journal=None)
        ways.append(
            _likeliest(part, rank, asked, target)
            if measure
            else [choose(part, rank, asked, target, measure=False)]
        )
        if not any(c.picked for c in ways[-1]):
            return []
    made: dict[Plan, Composite] = {}
    for n in range(max(map(len, ways))):
        each = [way[min(n, len(way) - 1)] for way in ways]
        for backend in BACKENDS:
            if all(backend in c.picked for c in each):
                picked = [c.picked[backend] for c in each]
                plan = compose(found, [p.plan for p in picked])
                time_us = sum(p.time_us for p in picked)
                made.setdefault(plan, Composite(plan, found, each, time_us))
    return sorted(made.values(), key=lambda c: c.time_us)


def _likeliest(part: Program, rank: RankPart, request: Request, target: Target) -> list[Chosen]:
    """The plans that are likeliest by what tiles took, with other tiles each: they are checked and
    timed in the composites, as PyTorch has no like of the part to be compared with.
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
        most = (_STAYING if stays else _TILINGS) if is_product else 1
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
