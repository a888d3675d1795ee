"""The pipeline behind the cache: what a result is cached under, and a function from traced programs
to callables for the decorator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from mirage_py.cache import cached_results
from mirage_py.cache.cached_results import Question
from mirage_py.pipeline import pipeline
from mirage_py.pipeline.selection.request import Request
from mirage_py.settings import Settings
from mirage_py.ugraph.ir.program import Program


def question_of(program: Program, request: Request) -> Question:
    """What the cache is asked for before the pipeline runs with the same arguments."""
    chosen, on_gpu = pipeline.resolve_target(request.target)
    return Question(
        request.about(program),
        chosen.name,
        request.backend,
        request.effort,
        request.seed,
        on_gpu and request.effort != "none",
        request.budget,
        request.limits,
        request.counts_host,
        request.writes,
        request.rows,
        "chain" if request.streaming else "",
    )


def with_writes(request: Request, function: Callable[..., Any]) -> Request:
    """The request of a function that may write to what it is given."""
    from mirage_py.runtime.eager.writing import written_words

    return replace(request, writes=written_words(function))


def optimizer_for(
    request: Request, *, cache: bool = True, modes: Collection[str] | None = None
) -> Callable[[Program, Sequence[Any], Callable[..., Any]], Callable[..., Any]]:
    """A function from a traced program to a callable, for the decorator.

    A result is looked up in the cache first; the second process searches, compiles and times
    nothing. Where no kernel beats the function, it is an ``OriginalProgram``: the function itself,
    or by torch.compile, whichever is faster. That is in both its modes, or in some of ``modes``.
    """

    def prepare(
        program: Program, example_inputs: Sequence[Any], fallback: Callable[..., Any]
    ) -> Callable[..., Any]:
        del example_inputs  # shapes, types and strides are the program's
        from mirage_py.runtime.launch.launch import PlanRunner
        from mirage_py.runtime.store.artifact import OriginalProgram
        from mirage_py.runtime.tune.baselines import baselines

        against = baselines(program, fallback, effort=request.effort, modes=modes)
        asked = with_writes(replace(request, baselines=against), fallback)
        question = question_of(program, asked)
        with_cache = cache and not Settings.from_env().no_cache
        known = cached_results.cached_artifact(question) if with_cache else None
        if known is not None:
            plan, report = known.plan, known.report
        else:
            result = pipeline.run(program, asked)
            plan, report = result.plan, result.document()
            if with_cache:
                cached_results.keep(question, result)
        return PlanRunner(plan) if plan is not None else OriginalProgram(against, report)

    return prepare
