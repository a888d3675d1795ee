"""Answers from a search that is run now: the report lists the plans near the best alone."""

from __future__ import annotations

from mirage_py.questions.answer import Answer, Basis, Fact
from mirage_py.questions.subject import EQUAL_US, Subject
from mirage_py.questions.tried_plans import Matches, dropped_facts, of_sort
from mirage_py.search.rank.shortlist import HOPELESS

# How the note of a program in parts begins.
CUT = "partitioned in "


def searched(
    question: str, subject: Subject, matches: Matches, known: tuple[Fact, ...] = ()
) -> Answer:
    """The best plan of a sort beside the best of all, after the facts that are ``known``."""
    cut = [note for note in subject.report.get("notes", ()) if note.startswith(CUT)]
    if cut:
        facts = (*known, *(Fact(note, Basis.REPORT, "parts") for note in cut))
        change = "search a part by itself: write it as a program of its own"
        return Answer(question, "The program was cut, and searched in parts.", facts, (change,))
    again = subject.search_again()
    passed, dropped = of_sort(subject, matches, again)
    best_us = again["best"]["time_us"]
    count = len(again["candidates"])
    drops = tuple(dropped_facts(dropped))
    if not passed:
        text = (
            f"none is among the {count} plans that the cost model ranks highest, of which "
            f"the best is predicted to take {best_us:.2f} us"
        )
        rule = (
            f"left out are plans that do not fit, all but a few that take over {HOPELESS:g} times "
            "as long as the best, and near-copies"
        )
        facts = (Fact(text, Basis.SEARCH), Fact(rule, Basis.RULE, "hopeless"), *drops)
        return Answer(question, "No plan of that sort is worth a timing.", (*known, *facts))
    first = passed[0]
    assert first.time_us is not None
    gap = first.time_us - best_us
    text = (
        f"{first.what}: {first.time_us:.2f} us predicted, the best of {count} plans "
        f"{best_us:.2f} us"
    )
    facts = (*known, Fact(text, Basis.SEARCH))
    if gap < EQUAL_US:
        return Answer(question, "The cost model sees no difference.", facts, ("measure it",))
    verdict = f"It is predicted to be slower, by {gap / best_us:.1%}."
    return Answer(question, verdict, facts, (f"its prediction would have to fall by {gap:.2f} us",))
