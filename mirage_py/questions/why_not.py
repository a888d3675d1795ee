"""Why not another kernel: the answer to a question about a result."""

from __future__ import annotations

from mirage_py.questions.answer import Answer, Basis, Fact
from mirage_py.questions.kinds import answer_back_end, answer_kind
from mirage_py.questions.launches import answer_launch
from mirage_py.questions.question import (
    OfBackEnd,
    OfKind,
    OfLaunch,
    OfOriginal,
    OfPlan,
    OfTile,
    Question,
    read_question,
)
from mirage_py.questions.subject import Subject
from mirage_py.questions.tiles import answer_tile
from mirage_py.questions.tried_plans import answer_plan, facts_of_winner
from mirage_py.result import SOURCES


def why_not(subject: Subject, text: str) -> Answer:
    """The answer to a question in words. Raises InputError for what is no question about this
    result, with what can be asked.
    """
    return _answered(subject, read_question(text, subject))


def _answered(subject: Subject, asked: Question) -> Answer:
    match asked:
        case OfPlan(number):
            return answer_plan(subject, number)
        case OfKind():
            return answer_kind(subject, asked)
        case OfBackEnd():
            return answer_back_end(subject, asked)
        case OfTile():
            return answer_tile(subject, asked)
        case OfLaunch():
            return answer_launch(subject, asked)
        case OfOriginal():
            return _original(subject)


def _original(subject: Subject) -> Answer:
    """What there was before, beside the result."""
    question = "why not the original program"
    report = subject.report
    baseline, served = report["baseline"], report.get("served", {})
    text = f"{baseline['name']}: {baseline['time_us']:.2f} us {SOURCES[baseline['source']]}"
    before = Fact(text, Basis.REPORT)
    if subject.plan is None:
        why = Fact(served.get("why", ""), Basis.REPORT, served.get("code", ""))
        return Answer(question, "It is the result.", (before, why))
    gap = baseline["time_us"] - subject.best_us
    if gap > 0:
        verdict = f"It is {SOURCES[baseline['source']]} to be slower, {gap:.2f} us more."
        change = (f"it would have to take {gap:.2f} us less",)
        return Answer(question, verdict, facts_of_winner(subject), change)
    verdict = "It is predicted to be faster; without a measurement the best plan is returned."
    rule = "only what was measured on this GPU makes the original program the result"
    facts = (*facts_of_winner(subject), Fact(rule, Basis.RULE, "not_measured"))
    return Answer(question, verdict, facts, (f"measure it on a machine with {report['target']}",))
