"""Answers about the winning plan with one thing changed: stored times first, then predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from mirage_py.errors import MirageError
from mirage_py.questions.answer import Answer, Basis, Fact
from mirage_py.questions.subject import EQUAL_US, Subject
from mirage_py.questions.variations import Variation, other_launches, too_large, variation
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.text.tiles_text import tiles_of


def no_plan(question: str, subject: Subject) -> Answer:
    """There is nothing to change where the original program is the result."""
    served = subject.report.get("served", {})
    why = Fact(served.get("why", "no kernel was faster"), Basis.REPORT, served.get("code", ""))
    return Answer(question, "The original program is the result: it has no tiles.", (why,))


def answer_varied(
    question: str,
    subject: Subject,
    varied: Sequence[tuple[int, Plan]],
    rules: tuple[Fact, ...],
    stored: Answer | None,
    is_asked: Callable[[LaunchConfig], bool] = lambda _: True,
) -> Answer:
    """What speaks against each of the plans, which differ from the winner in the kernel of a
    number. Of other launches those are looked at that are what ``is_asked`` for.
    """
    facts: list[Fact] = list(stored.facts if stored else ())
    changes: list[str] = list(stored.changes if stored else ())
    verdicts: list[str] = [f"{stored.verdict} With nothing else changed:"] if stored else []
    for number, plan in varied:
        found = _judged(subject, number, plan, is_asked)
        # Of several kernels each says which it is.
        name = f"{found.question}: " if len(varied) > 1 else ""
        verdicts.append(name + found.verdict)
        facts += [replace(f, text=name + f.text) for f in found.facts]
        changes += [name + change for change in found.changes]
    verdict = " ".join(dict.fromkeys(verdicts))
    return Answer(question, verdict, (*facts, *rules), tuple(dict.fromkeys(changes)))


def _judged(
    subject: Subject, number: int, plan: Plan, is_asked: Callable[[LaunchConfig], bool]
) -> Answer:
    assert subject.plan is not None
    name = plan.ugraph.kernels[number].name
    try:
        other = variation(plan, number, subject.target)
    except MirageError as error:
        return Answer(
            name, "It cannot be tiled so.", (Fact(error.what, Basis.RULE, "no_schedule"),)
        )
    own = variation(subject.plan, number, subject.target)
    large = too_large(other)
    if large is not None:
        return Answer(name, "Its tiles are larger than any that are tried.", (large, other.needs()))
    fitting = (v for v in other_launches(other) if is_asked(v.plan.options[number]))
    best = next(fitting, None)
    if not other.fits:
        verdict = f"It does not fit {subject.target.name}."
        return Answer(name, verdict, (other.needs(),), _room(best))
    fault = other.fault()
    predicted = Fact(_beside(other, own), Basis.MODEL)
    if fault is not None:
        return Answer(name, "The back end cannot express it.", (fault, predicted))
    facts = [predicted, other.occupancy(), other.needs()]
    if other.load.blocks != own.load.blocks or other.load.waves != own.load.waves:
        facts.insert(2, Fact(f"the result: {own.occupancy().text}", Basis.MODEL))
    if best is not None and best.time_us < other.time_us - EQUAL_US:
        text = f"with its best launch, {tiles_of(best.plan)}: {best.time_us:.2f} us"
        facts.append(Fact(text, Basis.MODEL))
    else:
        best = other
    return Answer(name, _verdict(best, own), tuple(facts), _changes(subject, best, own))


def _beside(other: Variation, own: Variation) -> str:
    return f"{other.time_us:.2f} us predicted for the whole plan, the result {own.time_us:.2f} us"


def _verdict(best: Variation, own: Variation) -> str:
    gap = best.time_us - own.time_us
    if gap > EQUAL_US:
        return f"It is predicted to be slower, by {gap / own.time_us:.1%}."
    if gap < -EQUAL_US:
        return f"The cost model predicts it to be faster, by {-gap / own.time_us:.1%}."
    return "The cost model sees no difference."


def _changes(subject: Subject, best: Variation, own: Variation) -> tuple[str, ...]:
    gap = best.time_us - own.time_us
    is_measured = subject.report["best"]["source"] == "measured"
    if gap > EQUAL_US:
        return (f"it waits for {best.bound}, which would have to take {gap:.2f} us less",)
    if is_measured:
        return ("--effort full: the result is the fastest of the plans that were measured",)
    return (f"measure it, on a machine with {subject.target.name}",)


def _room(fitting: Variation | None) -> tuple[str, ...]:
    """The fastest launch of the same tiles that fits."""
    if fitting is None:
        return ("smaller tiles: no launch makes room for these",)
    launch = fitting.plan.options[fitting.number]
    stages = ", ".join(map(str, launch.num_stages))
    depth = f" and {stages} stages" if stages else ""
    taken = fitting.load.footprint.smem_bytes
    what = f"it fits with {launch.num_warps} warps{depth}: {taken} bytes of shared memory"
    return (f"{what}, {fitting.time_us:.2f} us predicted",)
