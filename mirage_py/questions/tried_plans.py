"""Answers from plans that were tried: one plan by its number, and all plans of some sort."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mirage_py.questions.answer import Answer, Basis, Fact
from mirage_py.questions.subject import EQUAL_US, Subject, Tried, tried_of
from mirage_py.result import SOURCES

Matches = Callable[[Tried], bool]


def answer_plan(subject: Subject, number: int) -> Answer:
    """Why one plan is not the result."""
    tried = subject.tried[number]
    question = f"why not {tried}"
    if tried == subject.winner:
        return Answer(question, f"It is the result: {subject.best_text}.", facts_of_winner(subject))
    if not tried.passed:
        fact = Fact(tried.reason or "no reason is known", Basis.REPORT, tried.code)
        return Answer(question, "It was dropped before it could win.", (fact,), (_pass(tried),))
    if tried.time_us is None:
        fact = Fact("it has no time: the budget was used up before its turn", Basis.REPORT)
        change = "a larger --budget, or --effort full"
        return Answer(question, "It was not timed.", (fact,), (change,))
    return Answer(
        question, verdict_of(subject, tried), times(subject, tried), change_of(subject, tried)
    )


def times(subject: Subject, tried: Tried, before: str = "") -> tuple[Fact, ...]:
    """The time of a plan beside that of the result."""
    assert tried.time_us is not None
    beside = subject.beside_the_best(tried.time_us)
    return (
        Fact(f"{before}{tried}: {tried.time_text}, {beside}", Basis.REPORT),
        Fact(f"the result is {subject.best_text}", Basis.REPORT),
    )


def verdict_of(subject: Subject, tried: Tried) -> str:
    """A timed plan that is not the result, in a sentence."""
    assert tried.time_us is not None
    if tried.time_us <= subject.best_us - EQUAL_US:
        return "It was faster in one timing, and did not pass or was not faster in the last one."
    same = abs(tried.time_us - subject.best_us) < EQUAL_US
    if same and tried.source == "model":
        return "The cost model sees no difference: of equal predictions the first is the result."
    return "It is as fast." if same else f"It is {tried.said} to be slower."


def change_of(subject: Subject, tried: Tried) -> tuple[str, ...]:
    """What would make it the result."""
    assert tried.time_us is not None
    gap = tried.time_us - subject.best_us
    changes = []
    if gap >= EQUAL_US:
        changes.append(f"its time would have to fall by {gap:.2f} us")
    elif tried.source == "measured":
        changes.append("nothing: they are closer than one timing is to the next")
    if tried.source == "model":
        changes.append(f"measure it, on a machine with {subject.target.name}")
    return tuple(changes)


def facts_of_winner(subject: Subject) -> tuple[Fact, ...]:
    """Why the result is one."""
    report = subject.report
    baseline, search = report["baseline"], report["search"]
    said = SOURCES[baseline["source"]]
    facts = [
        Fact(
            f"{report['best']['time_us']:.2f} us beside {baseline['time_us']:.2f} us {said} of "
            f"{baseline['name']}",
            Basis.REPORT,
        )
    ]
    if search.get("limited_by"):
        facts.append(Fact(f"it waits for: {search['limited_by']}", Basis.REPORT))
    if "lower_bound_us" in search:
        floor = search["lower_bound_us"]
        facts.append(Fact(f"no plan takes less than {floor:.2f} us: the roofline", Basis.REPORT))
    return tuple(facts)


def of_sort(
    subject: Subject, matches: Matches, report: Mapping[str, Any] | None = None
) -> tuple[list[Tried], list[Tried]]:
    """The plans of a report that match, those that passed fastest first, and those dropped."""
    plans = subject.tried if report is None else tried_of(report)
    own = [t for t in plans if matches(t)]
    passed = [t for t in own if t.passed]
    passed.sort(key=lambda t: (t.time_us is None, t.time_us or 0.0))
    return passed, [t for t in own if not t.passed]


def answer_sort(question: str, subject: Subject, matches: Matches) -> Answer | None:
    """Why no plan of a sort is the result, from the report alone; None where it has none."""
    passed, dropped = of_sort(subject, matches)
    if subject.winner is not None and matches(subject.winner):
        verdict = f"The result is of that sort: {subject.best_text}."
        return Answer(question, verdict, facts_of_winner(subject))
    drops = tuple(dropped_facts(dropped))
    timed = [t for t in passed if t.time_us is not None]
    if timed:
        best = timed[0]
        facts = (*times(subject, best, f"of {len(passed)} that passed the fastest is "), *drops)
        return Answer(question, verdict_of(subject, best), facts, change_of(subject, best))
    if passed:
        text = f"{len(passed)} of that sort passed and none was timed within the budget"
        return Answer(
            question, "None was timed.", (Fact(text, Basis.REPORT), *drops), ("a larger --budget",)
        )
    if dropped:
        verdict = f"All {len(dropped)} of that sort were dropped."
        return Answer(question, verdict, drops, tuple(dict.fromkeys(map(_pass, dropped))))
    return None


def dropped_facts(dropped: Sequence[Tried]) -> Iterator[Fact]:
    """How many were dropped for each reason, the most frequent first."""
    counts = Counter(t.code for t in dropped)
    for code, count in counts.most_common():
        first = next(t for t in dropped if t.code == code)
        sentence = first.reason.partition("\n")[0]
        yield Fact(f"{count} dropped, {first} first: {sentence}", Basis.REPORT, code)


def _pass(tried: Tried) -> str:
    return f"it would have to pass where it was dropped ({tried.code or 'no code'})"
