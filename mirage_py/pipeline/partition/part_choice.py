"""The plans of one part: the fastest of each back end, and PyTorch's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from mirage_py.errors import UnsupportedError, VerificationError
from mirage_py.pipeline.partition.library_parts import library_result
from mirage_py.pipeline.partition.limits import operator_count
from mirage_py.pipeline.selection.request import AUTO, Request
from mirage_py.pipeline.selection.selection import Ranking
from mirage_py.pipeline.selection.time_budget import TimeBudget
from mirage_py.result import Evidence, Result
from mirage_py.runtime.base.emission import BACKENDS
from mirage_py.runtime.eager.eager_source import eager_source
from mirage_py.search.model import baseline_model
from mirage_py.targets import Target
from mirage_py.ugraph.building.torch_calls import torch_call
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import ATEN, INDUCTOR, UGraph

# A part and the target it is for, to its ranked plans.
RankPart = Callable[[Program, Target, Request], Ranking]


@dataclass(frozen=True, slots=True)
class Picked:
    """A part's plan; PyTorch's needs no evidence."""

    plan: Plan
    time_us: float
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """What came of one part: its fastest plan of each back end, or ``why`` there is none.

    ``by_torch`` is the part in PyTorch, if it has such a form, one ATen operator after the other.
    ``is_ours`` where the plans have kernels that were searched: neither a library's call nor a
    copy. Such are ``untried`` if they were ranked and nothing else.
    """

    result: Result | None
    picked: Mapping[str, Picked] = field(default_factory=dict)
    why: str = ""
    by_torch: Picked | None = None
    is_ours: bool = False
    untried: bool = False

    def of_torch(self, backend: str, *, compiled: bool) -> Picked | None:
        """PyTorch's plan beside kernels of a back end; a single operator is not ``compiled``."""
        found = self.by_torch
        if found is None:
            return None
        part = found.plan.ugraph.program
        by = INDUCTOR if compiled and operator_count(part) > 1 else ATEN
        ugraph = replace(found.plan.ugraph, kernels=(torch_call(part, by),))
        return replace(found, plan=replace(found.plan, ugraph=ugraph, backend=backend))


def choose(
    part: Program,
    rank: RankPart,
    request: Request,
    target: Target,
    *,
    measure: bool,
    by_library: bool = True,
    is_late: bool = False,
) -> Chosen:
    """The plans of one part, searched within the budget of ``request``. What a library computes as
    one call is not searched if it is to be ``by_library``. Where it ``is_late`` nothing is timed:
    the likeliest plans are checked and timed with the whole.
    """
    found = _choose(
        part, rank, request, target, measure=measure, by_library=by_library, is_late=is_late
    )
    timed = found.result is not None and measure and found.result.baseline.source == "measured"
    baseline = found.result.baseline.time_us if found.result and timed else None
    return replace(found, by_torch=torch_picked(part, target, baseline))


def not_searched(part: Program, target: Target, why: str) -> Chosen:
    """A part that there was no time for."""
    return Chosen(None, why=why, by_torch=torch_picked(part, target))


def torch_picked(part: Program, target: Target, time_us: float | None = None) -> Picked | None:
    """The part in PyTorch, in a time that was measured or is predicted; None where it has no such
    form.
    """
    try:
        eager_source(part)
    except UnsupportedError:
        return None
    if time_us is None:
        time_us = baseline_model.fused_model_us(part, target)
    return Picked(Plan(UGraph(part, (torch_call(part, ATEN),)), (LaunchConfig(),)), time_us)


def _choose(
    part: Program,
    rank: RankPart,
    request: Request,
    target: Target,
    *,
    measure: bool,
    by_library: bool,
    is_late: bool,
) -> Chosen:
    deadline = TimeBudget(request.budget).end
    try:
        backend = _backends(request.backend)[0]
        called = None
        if by_library:
            called = library_result(part, target, seed=request.seed, backend=backend)
        if called is not None:
            return _library_chosen(called, request.backend)
        ranking = rank(part, target, request)
        if measure and (is_late or not operator_count(part)):
            searched = bool(operator_count(part))
            return replace(_unmeasured(ranking), is_ours=searched, untried=searched)
        if not measure or request.should_stop():
            found = ranking.modelled(deadline)
            why = "; ".join(found.notes)
            if found.plan is None:
                return Chosen(found, why=why)
            picked = Picked(found.plan, found.best.time_us, found.evidence)
            is_ours = bool(operator_count(part))
            return Chosen(found, {found.plan.backend: picked}, why, is_ours=is_ours)
        # No baseline but eager: whether kernels pay off is decided for the whole program.
        eager = replace(ranking, request=replace(request, effort="none"))
        return _fastest(ranking, eager.measured(deadline))
    except (UnsupportedError, VerificationError) as error:
        return Chosen(None, why=str(error))


def _unmeasured(ranking: Ranking) -> Chosen:
    """The likeliest plan of each back end, as of a copy, whose plans are alike: it is checked and
    timed with the rest.
    """
    picked: dict[str, Picked] = {}
    for instance in ranking.instances:
        plan = instance.plan
        if plan.backend not in picked:
            with contextlib.suppress(VerificationError):
                evidence = ranking.evidence(plan, 0.0, 0.0, "")
                picked[plan.backend] = Picked(plan, instance.estimate.time_us, evidence)
        if len(picked) == len(BACKENDS):
            break
    return Chosen(ranking.predicted(), picked, "" if picked else "no plan was ranked in time")


def _backends(asked: str) -> tuple[str, ...]:
    return BACKENDS if asked == AUTO else (asked,)


def _library_chosen(called: Result, asked: str) -> Chosen:
    """A library's part is the same beside kernels of either back end."""
    plan = called.plan
    assert plan is not None
    picked = Picked(plan, called.best.time_us, called.evidence)
    backends = _backends(asked)
    return Chosen(called, {b: replace(picked, plan=replace(plan, backend=b)) for b in backends})


def _fastest(ranking: Ranking, found: Result) -> Chosen:
    """The fastest plans that passed, even where PyTorch is faster on this part alone."""
    picked: dict[str, Picked] = {}
    if found.plan is not None:
        picked[found.plan.backend] = Picked(found.plan, found.best.time_us, found.evidence)
    for timed in sorted(found.candidates, key=lambda c: c.timing.time_us):
        plan, time_us = timed.plan, timed.timing.time_us
        if not timed.passed or plan is None or plan.backend in picked or time_us == inf:
            continue
        try:
            evidence = ranking.evidence(plan, 0.0, 0.0, "")
        except VerificationError:
            continue  # the next fastest of its back end is asked about
        picked[plan.backend] = Picked(plan, time_us, evidence)
    why = "" if picked else "; ".join(found.notes)
    return Chosen(found, picked, why, is_ours=bool(picked))
