"""The subject of ``explain --why-not``: an artifact, or what a search finds for a spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from mirage_py.cli.input.search_limits import read_limits
from mirage_py.cli.input.subject import read_subject
from mirage_py.errors import InputError
from mirage_py.pipeline.pipeline import Request, rank_plans, resolve_target
from mirage_py.questions.subject import Subject
from mirage_py.runtime.store.artifact import load_artifact
from mirage_py.search.enumerate.search import SearchLimits
from mirage_py.targets import target as target_named

# A question is answered in about a minute, or not by a search.
_BUDGET_S = 60.0


def of_artifact(where: str, seed: int, progress: Callable[[str], None]) -> Subject:
    """An artifact; a search for it has the bounds of the first one."""
    held = load_artifact(where)

    @cache
    def search_again() -> Mapping[str, Any]:
        numbers = held.report["search"].get("limits", {})
        limits = SearchLimits(**{k: v for k, v in numbers.items() if hasattr(SearchLimits, k)})
        target = target_named(held.report["target"])
        request = Request(
            target.name, "auto", "quick", _BUDGET_S, seed, limits=limits, progress=progress
        )
        return rank_plans(held.program, target, request).predicted().document()

    return Subject(held.program, held.plan, held.report, search_again, where)


def of_spec(
    where: str,
    target: str,
    seed: int,
    limits: Sequence[str],
    inputs: Sequence[str],
    sizes: Sequence[str],
    progress: Callable[[str], None],
) -> Subject:
    """What a search finds for a spec or function; nothing is compiled or measured."""
    held = read_subject(where, inputs=inputs, sizes=sizes)
    if held.ugraph is not None:
        raise InputError(
            "a µGraph has nothing to compare it with",
            where=where,
            why="only a search knows what else was tried",
            repair="name an artifact, or the spec",
        )
    chosen, _ = resolve_target(target)
    request = Request(
        chosen.name, "auto", "quick", seed=seed, limits=read_limits(limits), progress=progress
    )
    result = rank_plans(held.program, chosen, request).predicted()
    report = result.document()
    return Subject(held.program, result.plan, report, lambda: report, where)
