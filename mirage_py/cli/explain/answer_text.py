"""An answer to ``explain --why-not`` as text."""

from __future__ import annotations

from collections.abc import Iterator

import click

from mirage_py.cli.explain.explanation_text import wrapped
from mirage_py.questions.answer import Answer


def answer_text(answer: Answer) -> str:
    """The question, the verdict, each fact with where it is from, and what would have to change."""
    return "\n".join(_lines(answer))


def _lines(answer: Answer) -> Iterator[str]:
    yield click.style(f"{answer.question[:1].upper()}{answer.question[1:]}?", bold=True)
    yield from wrapped(answer.verdict, 2, 4)
    for fact in answer.facts:
        code = f" {fact.code}" if fact.code else ""
        yield from wrapped(f"{fact.text} [{fact.basis}{code and ':'}{code}]", 4, 6)
    if answer.changes:
        yield "  What would have to change"
        for change in answer.changes:
            yield from wrapped(change, 4, 6)
