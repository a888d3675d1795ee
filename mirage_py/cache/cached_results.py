"""Lookup of cached results: the same request searches, compiles and times nothing."""

from __future__ import annotations

import functools
import hashlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mirage_py import targets
from mirage_py.cache import installed_plans
from mirage_py.cache.stored_result import stored_result
from mirage_py.errors import MirageError, MirageWarning
from mirage_py.result import Result
from mirage_py.runtime.store.artifact import Artifact
from mirage_py.runtime.store.cache import ResultCache, cache_key
from mirage_py.runtime.store.seals import is_sealed
from mirage_py.search import model
from mirage_py.search.enumerate.search import SearchLimits
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program


@dataclass(frozen=True, slots=True)
class Question:
    """Everything that the result of an optimisation may depend on.

    ``measured`` says whether a GPU times the candidates; ``budget`` is in seconds. ``part`` is
    empty but where plans for a chain were asked for, too: "chain" is then the result, "link" its
    plan for a chain.
    """

    program: Program
    target: str
    backend: str
    effort: str
    seed: int
    measured: bool
    budget: float | None = None
    limits: SearchLimits | None = None
    counts_host: bool = False
    writes: str = ""
    rows: tuple[str, ...] = ()
    part: str = ""

    @property
    def key(self) -> str:
        """The name of its result in the cache."""
        settings = {
            "effort": self.effort,
            "seed": str(self.seed),
            "measured": str(self.measured),
        }
        if not self.measured:
            settings["model"] = _model_digest()
        if self.counts_host and self.measured:
            settings["host"] = "True"
        if self.writes and self.measured:
            settings["writes"] = self.writes
        if self.rows:
            settings["rows"] = ",".join(self.rows)
        if self.part:
            settings["part"] = self.part
        if self.budget is not None:
            settings["budget"] = str(self.budget)
        if self.limits is not None and self.limits != SearchLimits():
            settings["limits"] = str(sorted(asdict(self.limits).items()))
        return cache_key(self.program, self.target, self.backend, settings)


@functools.cache
def _model_digest() -> str:
    """Of the cost model's sources and rates: without a GPU it ranks plans and gives all times."""
    found = hashlib.sha256()
    for path in (*sorted(Path(str(model.__file__)).parent.glob("*.py")), Path(targets.__file__)):
        found.update(path.read_bytes())
    return found.hexdigest()


def is_cached(question: Question) -> bool:
    """Whether there is an entry for a question, without reading it."""
    places = (ResultCache().folder(question.target, question.key), *_installed(question))
    return any(place.is_dir() for place in places)


def cached_artifact(question: Question) -> Artifact | None:
    """What the cache holds for a question, or an installed package with plans."""
    store, asked = ResultCache(), (question.program, question.target, question.key)
    found = trusted_entry(store, *asked)
    if found is None and installed_plans.take_in(store, question.target, question.key):
        found = trusted_entry(store, *asked)
    return found


def _installed(question: Question) -> Iterator[Path]:
    return (folder / question.target / question.key for folder in installed_plans.folders())


def trusted_entry(store: ResultCache, program: Program, target: str, key: str) -> Artifact | None:
    """An entry for a program that was found or verified by this user; any other is verified now,
    once, and goes where it is wrong.
    """
    held = store.get(target, key)
    # An entry that was imported under another program's key is none.
    if held is None or held.program.digest != program.digest:
        return None
    if is_sealed(held):
        return held
    from mirage_py.cache.foreign_results import verified_here

    try:
        found = verified_here(held, target)
    except MirageError as error:
        warnings.warn(
            f"an entry of the cache is not used: {error.what}", MirageWarning, stacklevel=3
        )
        store.drop(target, key)
        return None
    store.put(target, key, program=found.program, plan=found.plan, report=found.report)
    return found


def cached_result(question: Question) -> Result | None:
    """The result for a question that was asked before."""
    held = cached_artifact(question)
    return stored_result(question.program, held) if held is not None else None


def keep(question: Question, result: Result) -> None:
    """Keep a result for the next time its question is asked, if all baselines were timed."""
    report = result.document()
    if is_late(report):
        return
    store, link = ResultCache(), _of_link(question)
    plans = {question: result.plan}
    if result.link is not None:
        plans[link] = result.link
    elif question.part:
        store.drop(link.target, link.key)
    for asked, plan in plans.items():
        store.put(asked.target, asked.key, program=asked.program, plan=plan, report=report)


def cached_link(question: Question) -> Plan | None:
    """The plan for a chain of a cached result, if it has one of its own."""
    found = cached_artifact(_of_link(question)) if question.part else None
    return None if found is None else found.plan


def _of_link(question: Question) -> Question:
    return replace(question, part="link")


def is_late(report: Mapping[str, Any]) -> bool:
    """Whether a baseline was still compiling when the others were timed, or found no GPU memory:
    the next time it is in torch's caches, and may be the fastest.
    """
    return bool(report.get("record", {}).get("late"))
