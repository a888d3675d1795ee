"""Answers about launch options: warps, stages, and everything that stored plans have flags for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from mirage_py.errors import InputError
from mirage_py.questions.answer import Answer, Basis, Fact
from mirage_py.questions.question import OfLaunch, blocks_of
from mirage_py.questions.subject import Subject, Tried
from mirage_py.questions.tried_plans import answer_sort
from mirage_py.questions.variations import with_kernel
from mirage_py.questions.varied import answer_varied, no_plan
from mirage_py.ugraph.ir.launch_choices import Option
from mirage_py.ugraph.ir.launch_config import LaunchConfig, launch_options
from mirage_py.ugraph.ir.plan import Plan

_PLAIN = ("warps", "stages")


def answer_launch(subject: Subject, asked: OfLaunch) -> Answer:
    """Why the kernels are not launched so. Raises InputError for a value that there is not."""
    question = f"why not {asked.key} {asked.text}".rstrip()
    option = None if _is_plain(asked) else _option(asked.key)
    if option is not None and not asked.text:
        return _all_values(question, subject, option)
    plan = subject.plan
    if plan is None:
        return no_plan(question, subject)
    rules = tuple(_rules(subject, plan, option) if option else ())
    stored = answer_sort(question, subject, lambda t: _is_launched(t, asked))
    varied = list(_varied(plan, subject, asked))
    if all(other == plan for _, other in varied):
        none = Answer(question, "The result has no kernel of ours to launch so.")
        has = Answer(question, f"The result has it: {subject.best_text}.", rules)
        return has if varied else none
    if any(rule.code for rule in rules):
        if stored is not None:
            return replace(stored, facts=(*stored.facts, *rules))
        return Answer(question, "It has no effect there.", rules, _changes(subject, option))

    def is_asked(options: LaunchConfig) -> bool:
        return _changed(options, asked) in (options, None)

    others = [v for v in varied if v[1] != plan]
    return answer_varied(question, subject, others, rules, stored, is_asked)


def _is_plain(asked: OfLaunch) -> bool:
    """Whether it is about the number of warps or stages, and no flag."""
    return asked.key in _PLAIN and asked.text.isdecimal()


def _option(key: str) -> Option:
    return next(o for o in launch_options().values() if o.key == key)


def _varied(plan: Plan, subject: Subject, asked: OfLaunch) -> Iterator[tuple[int, Plan]]:
    for number, block in blocks_of(subject):
        options = _changed(plan.options[number], asked)
        if options is not None:
            yield number, with_kernel(plan, number, block, options)


def _changed(options: LaunchConfig, asked: OfLaunch) -> LaunchConfig | None:
    if not _is_plain(asked):
        return options.with_flag(asked.key, asked.text)
    count = int(asked.text)
    if asked.key == "warps":
        return replace(options, num_warps=count)
    stages = (count,) * len(options.num_stages)
    return replace(options, num_stages=stages) if stages else None


def _is_launched(tried: Tried, asked: OfLaunch) -> bool:
    if not _is_plain(asked):
        flag = rf"{re.escape(asked.key)} {re.escape(asked.text)}"
    elif asked.key == "warps":
        flag = rf"{asked.text} warps?"
    else:
        flag = rf"stages (?:\d+, )*{asked.text}"
    return re.search(rf"(?:^|; |\| ){flag}(?:;|,| \||$)", tried.tiles) is not None


def _rules(subject: Subject, plan: Plan, option: Option) -> Iterator[Fact]:
    """What the option does, and whether it does anything here."""
    yield Fact(f"it {option.does}; it costs: {option.cost}", Basis.RULE)
    backends = option.backend.lower().split(" and ")
    if plan.backend not in backends:
        text = f"{option.backend} alone reads it, and the result is for {plan.backend}"
        yield Fact(text, Basis.RULE, "other_back_end")
    if subject.target.capability < option.capability:
        text = (
            f"it needs compute capability {option.capability / 10:.1f}, {subject.target.name} has "
            f"{subject.target.capability / 10:.1f}"
        )
        yield Fact(text, Basis.RULE, "capability")


def _changes(subject: Subject, option: Option | None) -> tuple[str, ...]:
    if option is None:
        return ()
    own = subject.plan.backend if subject.plan else ""
    change = f"--backend {option.backend.lower()}" if own not in option.backend.lower() else ""
    return (change,) if change else ("another --target",)


def _all_values(question: str, subject: Subject, option: Option) -> Answer:
    """An option without a value: what it can be, and what each comes to."""
    values = option.text.values
    answers = []
    for value in values:
        try:
            answers.append((value, answer_launch(subject, OfLaunch(option.key, value))))
        except InputError:  # a sample of what a number or name may look like
            continue
    default = Fact(f"by default {option.default}; it can be {', '.join(values)}", Basis.RULE)
    changes = tuple(dict.fromkeys(c for _, a in answers for c in a.changes))
    verdicts = [f"{value}: {a.verdict}" for value, a in answers]
    facts = tuple(dict.fromkeys(f for _, a in answers for f in a.facts))
    verdict = " ".join(verdicts) or "It takes a value: ask with one."
    return Answer(question, verdict, (default, *facts), changes)
