"""``mirage-py verify``: a comparison of two programs, µGraphs or artifacts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mirage_py.cli.input.options import json_option, seed_option
from mirage_py.cli.shell.screen import Screen, stdout_to_stderr

if TYPE_CHECKING:
    from mirage_py.cli.commands.equality import Verdict
    from mirage_py.cli.input.subject import Subject
    from mirage_py.runtime.code_check.check import CodeReport

DIFFERENT = 4


@click.command(short_help="Check over finite fields that two programs or µGraphs are equal.")
@click.argument("a", metavar="A", type=click.Path())
@click.argument("b", metavar="B", type=click.Path())
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Random trials of every comparison.",
)
@seed_option
@click.option(
    "--code",
    is_flag=True,
    help="Check the PTX of their kernels too: races, deadlocks, accesses out of bounds.",
)
@json_option
@click.pass_obj
def verify(screen: Screen, a: str, b: str, trials: int, seed: int, code: bool, json: bool) -> int:
    """Check over finite fields that A and B compute the same.

    A and B: a math spec (*.math), module.py:function, a µGraph (*.ug.json, or its text form), or an
    artifact folder. Inputs are matched by name, outputs by name or else by position.

    A µGraph is also proved equal to its program if the algebraic laws suffice. The derivation in an
    artifact is replayed step by step.

    Exits with 0 if they are equal, and with 4 if they differ, a stored derivation does not hold, or
    the code of a kernel has a fault.

    \b
    mirage-py verify examples/softmax.math softmax.mirage
    """  # noqa: D301  \b is click's mark for lines that stay as they are
    with stdout_to_stderr(), screen.progress() as progress:
        from mirage_py.cli.commands.equality import compare
        from mirage_py.cli.input.subject import read_subject

        progress("reading")
        subjects = read_subject(a), read_subject(b)
        verdict = compare(*subjects, trials=trials, seed=seed, progress=progress)
        reports = _code_of(subjects) if code else ()
    faulty = any(report.faults for report in reports)
    if json:
        checked = {"code": [report.document() for report in reports]} if code else {}
        screen.document(_document(a, b, verdict) | checked)
    else:
        screen.out(f"{'equal' if verdict.equal else 'different'}: {a} and {b}")
        for line in verdict.lines:
            screen.out(f"  {line}")
        for report in reports:
            screen.out(f"  code of {report}")
    return 0 if verdict.equal and not faulty else DIFFERENT


def _code_of(subjects: tuple[Subject, Subject]) -> tuple[CodeReport, ...]:
    from mirage_py.runtime.code_check.check import check_plan

    return tuple(r for s in subjects if s.plan is not None for r in check_plan(s.plan))


def _document(a: str, b: str, verdict: Verdict) -> dict[str, Any]:
    return {
        "schema": 1,
        "a": a,
        "b": b,
        "equal": verdict.equal,
        "trials": verdict.trials,
        "samples": verdict.samples,
        "pieces": verdict.pieces,
        "skipped": list(verdict.skipped),
        "primes": list(verdict.primes),
        "reason": verdict.reason,
        "difference": verdict.difference,
        "proofs": [
            {
                "subject": found.subject,
                "proved": found.proved,
                "stored": found.stored,
                "start": found.start,
                "steps": found.steps,
                "laws": list(found.laws),
                "fault": found.fault,
                "needs": list(found.needs),
            }
            for found in verdict.proofs
        ],
        "functions": [{"subject": name, **use.document()} for name, use in verdict.functions],
    }
