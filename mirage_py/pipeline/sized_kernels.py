"""Kernels for many sizes: a search at one of them, and of what it finds a plan without that size.

The equations of a µGraph hold at every size, and its field test is made at small ones anyway. What
may differ is the text that is emitted for run-time sizes, which the numerical check compares at the
smallest, at an odd and at the largest size of a bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mirage_py.cache.cached_results import Question, is_late, trusted_entry
from mirage_py.errors import UnsupportedError
from mirage_py.pipeline.cached_pipeline import question_of, with_writes
from mirage_py.pipeline.pipeline import run
from mirage_py.pipeline.selection.request import AUTO, Baselines, Request
from mirage_py.reasons import Code, reason
from mirage_py.result import Result
from mirage_py.runtime.sized.sized_check import check_sizes, run_on_gpu
from mirage_py.runtime.sized.sized_launch import SizedRunner
from mirage_py.runtime.store.artifact import OriginalProgram
from mirage_py.runtime.store.cache import ResultCache, cache_key
from mirage_py.runtime.tune.baselines import baselines
from mirage_py.settings import Settings
from mirage_py.ugraph.checks.run_time_sizes import why_fixed, with_run_time_sizes
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph

# (program at the sizes to tune for, its run-time dimensions, the function itself) -> a kernel
SizedOptimizer = Callable[[Program, Sequence[str], Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class SizedResult:
    """A plan with run-time sizes, or None, and the report of its search: ``searched`` or ``cached``
    by ``source``.
    """

    plan: Plan | None
    report: Any
    source: str


def sized_optimizer_for(
    request: Request, *, cache: bool = True, invariant: bool = False
) -> SizedOptimizer:
    """A function from a program and its run-time dimensions to a kernel for many sizes.

    A result is looked up in the cache first. Where no kernel with such sizes beats the function,
    it is an ``OriginalProgram``: the function itself, or by torch.compile for many sizes. With
    ``invariant`` the dimensions are of rows, each computed alike however many there are: without
    such a kernel UnsupportedError is raised, since nothing else can promise that.
    """

    def prepare(
        program: Program, dims: Sequence[str], fallback: Callable[..., Any]
    ) -> Callable[..., Any]:
        require_open(program, dims)
        against = baselines(program, fallback, effort=request.effort, dynamic=True)
        rows = tuple(dims) if invariant else ()
        asked = with_writes(replace(request, rows=rows), fallback)
        found = sized_result(program, dims, asked, lambda: against, cache=cache)
        return _runner(found.plan, found.report, found.source, against)

    return prepare


def sized_result(
    program: Program,
    dims: Sequence[str],
    request: Request,
    against: Callable[[], Baselines | None],
    *,
    cache: bool = True,
) -> SizedResult:
    """The fastest plan of a program whose sizes ``dims`` are open, searched or looked up.

    ``against`` makes the baselines of a search. Raises UnsupportedError where no plan is open, or,
    with rows in the request, where there is none.
    """
    if request.backend == AUTO:
        request = replace(request, backend="triton")
    require_open(program, dims)
    question = question_of(program, request)
    key = _key(question, dims)
    store = ResultCache() if cache and not Settings.from_env().no_cache else None
    known = trusted_entry(store, program, question.target, key) if store is not None else None
    if known is not None:
        return SizedResult(known.plan, known.report, "cached")
    result = run(program, replace(request, baselines=against()))
    plan = sized_plan(result, dims)
    if plan is not None and question.measured:
        checked = check_sizes(plan, run_on_gpu, seed=request.seed)
        if not checked.passed:
            why_not = reason(Code.WRONG_AT_SIZES, checked.reason)
            plan, result = None, replace(result, why_not=why_not)
    if plan is None and request.rows:
        raise UnsupportedError(
            "no kernel computes each row alike",
            where=program.name,
            why=str(result.why_not or "no plan passed its checks"),
            repair="leave invariant out, or ask for less in one function",
        )
    report = replace(result, plan=plan).document()
    if store is not None and not is_late(report):
        store.put(question.target, key, program=program, plan=plan, report=report)
    return SizedResult(plan, report, "searched")


def require_open(program: Program, dims: Sequence[str]) -> None:
    """UnsupportedError, before the search, where the program has a size written in: so has every
    plan of it.
    """
    bare = Plan(UGraph(program, ()), ())
    reasons = [reason for d in dims if (reason := why_fixed(bare, d))]
    if reasons:
        raise UnsupportedError(
            "the sizes of its program cannot be left open",
            where=program.name,
            why="; ".join(reasons),
            repair='use shapes="static"',
        )


def sized_plan(result: Result, dims: Sequence[str]) -> Plan | None:
    """The fastest plan of a result that can leave these sizes open and beats the baseline.

    Raises UnsupportedError, with the winner's reason, where there are plans and none can.
    """
    if result.plan is None:
        return None
    ranked = sorted((c for c in result.candidates if c.passed and c.plan), key=_time)
    plans = [result.plan]
    plans += [c.plan for c in ranked if c.plan and _time(c) <= result.baseline.time_us]
    for plan in plans:
        if not any(why_fixed(plan, d) for d in dims):
            return with_run_time_sizes(plan, dims)
    raise UnsupportedError(
        "no plan that was found can leave its sizes open",
        where=result.program.name,
        why="; ".join(filter(None, (why_fixed(result.plan, d) for d in dims))),
        repair='use shapes="static"',
    )


def _time(candidate: Any) -> float:
    return float(candidate.timing.time_us)


def _key(question: Question, dims: Sequence[str]) -> str:
    settings = {"of": question.key, "sizes": ",".join(dims)}
    return cache_key(question.program, question.target, question.backend, settings)


def _runner(plan: Plan | None, report: Any, source: str, against: Baselines) -> Callable[..., Any]:
    if plan is None:
        return OriginalProgram(against, report)
    runner = SizedRunner(plan)
    runner.source, runner.record = source, report
    return runner
