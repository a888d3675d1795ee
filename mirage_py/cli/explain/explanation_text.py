"""An explanation as text: a heading for each section, wrapped to the width of a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from mirage_py.cli.explain.explanation import Dropped, Explanation, Tried
from mirage_py.formatting.diagnosis import Diagnosis
from mirage_py.formatting.funnel import Row
from mirage_py.formatting.kernel_format import KernelDescription, UGraphDescription
from mirage_py.result import SOURCES

_WIDTH = 100


def explanation_text(explanation: Explanation) -> str:
    """All sections that say something."""
    e = explanation
    lines = [click.style(e.headline, bold=True)]
    sections = (
        ("What serves it", _served(e.served)),
        ("What it does", _winner(e.winner)),
        ("Why it is equal", _sentences(e.evidence)),
        ("The derivation", _derivation(e.derivation)),
        (f"How it was found ({e.seconds:.2f} s)", _search(e.funnel, e.rings)),
        ("How far it is from the least time", _sentences(e.roofline)),
        ("The best of each kind, by the cost model", _tried(e.best_by_kind)),
        ("Next best", _tried(e.next_best)),
        ("Dropped", _dropped(e.dropped)),
        ("What would have to change", _diagnoses(e.diagnoses)),
        ("Notes", _sentences(e.notes)),
    )
    for heading, found in sections:
        body = list(found)
        if body:
            lines += ["", click.style(heading, bold=True), *body]
    return "\n".join(line.rstrip() for line in lines)


def wrapped(text: str, indent: int, hanging: int | None = None) -> list[str]:
    """Lines of a terminal's width, the first ``indent`` spaces in, the others ``hanging``."""
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent if hanging is None else hanging),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _sentences(sentences: Sequence[str]) -> Iterator[str]:
    for sentence in sentences:
        yield from wrapped(sentence, 2, 4)


def _derivation(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        indent = 2 + len(line) - len(line.lstrip())
        yield from wrapped(line.lstrip(), indent, indent + 2)


def _served(served: Mapping[str, Any]) -> Iterator[str]:
    if served:
        yield from wrapped(f"{served['by']}: {served['why']}", 2, 4)


def _winner(winner: UGraphDescription | None) -> Iterator[str]:
    if winner is None:
        return
    yield from _sentences(winner.summary)
    for kernel in winner.kernels:
        yield from _kernel(kernel)


def _kernel(kernel: KernelDescription) -> Iterator[str]:
    yield from wrapped(f"kernel {kernel.name}: {kernel.title}", 2, 4)
    for step in kernel.steps:
        reads = f", reads {', '.join(step.reads)}" if step.reads else ""
        yield from wrapped(f"{step.title}{reads}", 4, 8)
        for line in step.lines:
            yield from wrapped(line, 6, 10)
    for remark in kernel.remarks:
        yield from wrapped(remark, 4, 6)


def _search(rows: Sequence[Row], rings: Sequence[tuple[str, str]]) -> Iterator[str]:
    for row in rows:
        if row.share is None:
            yield from wrapped(f"{row.count:>9}  {row.what}", 0, 11)
            continue
        yield from wrapped(f"{row.count:>9}  {row.share:>4.0%} {row.what}", 0, 16)
        if row.meaning:
            yield from wrapped(row.meaning, 16)
        if row.example:
            yield from wrapped(f"first: {row.example}", 16, 18)
    for ring, end in rings:
        yield from wrapped(f"{'ring':>9}  {ring}: {end}", 0, 11)


def _tried(plans: Sequence[Tried]) -> Iterator[str]:
    for plan in plans:
        name = plan.kind if plan.number is None else f"plan {plan.number}, {plan.kind}"
        said = f"{plan.time_us:>9.2f} us {SOURCES[plan.source]}  {name}: {plan.tiles}"
        yield from wrapped(said, 0, 13)


def _dropped(dropped: Sequence[Dropped]) -> Iterator[str]:
    for entry in dropped:
        first = f" (first: {entry.first})" if entry.first else ""
        yield from wrapped(f"{entry.count:>9}  {entry.reason}{first}", 0, 11)


def _diagnoses(diagnoses: Sequence[Diagnosis]) -> Iterator[str]:
    for diagnosis in diagnoses:
        times = f" ({diagnosis.count} times)" if diagnosis.count > 1 else ""
        yield from wrapped(f"{diagnosis.what}{times}", 2, 4)
        for label, text in (("why", diagnosis.why), ("try", diagnosis.repair)):
            if text:
                yield from wrapped(f"{label}: {text}", 4, 9)
