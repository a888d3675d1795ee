"""``mirage-py rerun``: an artifact whose kernels were edited, checked and timed again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from mirage_py.cli.input.options import Seconds, Seed, json_option
from mirage_py.cli.shell.screen import Screen, stdout_to_stderr

if TYPE_CHECKING:
    from mirage_py.runtime.rerun.edited import EditedArtifact
    from mirage_py.runtime.rerun.rerun import Rerun

NOT_EQUAL = 4
_MOST_LINES = 40


@click.command(short_help="Check and time an artifact again whose kernels were edited.")
@click.argument("folder", metavar="ARTIFACT", type=click.Path())
@click.option(
    "--seed", type=Seed(), default=0, show_default=True, help="Seed of the random inputs."
)
@click.option(
    "--budget",
    type=Seconds(),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Without a GPU: begin no other set of inputs after this time.",
)
@click.option(
    "--trust", is_flag=True, help="Run kernels of an artifact that was not made on this machine."
)
@json_option
@click.pass_obj
def rerun(screen: Screen, folder: str, seed: int, budget: float, trust: bool, json: bool) -> int:
    """Check and time an artifact again whose kernels were edited on disk.

    The files in kernels/ run as they are on disk, Triton files through their own launch(). They are
    compared with float64 at the sizes of the artifact: on the GPU, where they are timed beside the
    original kernels, or else on the CPU. Exits with 4 if they are wrong.

    \b
    mirage-py rerun softmax.mirage
    """  # noqa: D301  \b is click's mark for lines that stay as they are
    with stdout_to_stderr(), screen.progress() as progress:
        progress("reading")
        from mirage_py.runtime.rerun.edited import read_edited
        from mirage_py.runtime.rerun.rerun import rerun as run_again

        edited = read_edited(folder)
        if edited.runs_foreign_text and not trust:
            _refuse(edited)
        found = run_again(edited, seed=seed, budget_s=budget, progress=progress)
    if json:
        screen.document(_document(edited, found))
    else:
        screen.out("\n".join(_lines(edited, found)))
    return 0 if found.evidence.passed else NOT_EQUAL


def _refuse(edited: EditedArtifact) -> None:
    from mirage_py.errors import InputError

    files = ", ".join(e.file for e in edited.edits)
    raise InputError(
        "it was not made here by this user, and its kernels are not what its plan gives",
        where=str(edited.artifact.folder),
        why=f"running {files} executes whatever is in it",
        repair="read the files; then --trust",
    )


def _lines(edited: EditedArtifact, found: Rerun) -> Iterator[str]:
    if not edited.edits:
        yield "edited     nothing: the kernels are as they were written"
    for edit in edited.edits:
        yield f"edited     {edit.file}: {edit.use}"
        yield from (f"           {line}" for line in edit.changes[:_MOST_LINES])
        if len(edit.changes) > _MOST_LINES:
            yield f"           ... {len(edit.changes) - _MOST_LINES} more lines"
    from mirage_py.result import SOURCES
    from mirage_py.verify.numerical_check.check_strength import sets_text

    evidence = found.evidence
    if evidence.passed:
        error = f"{evidence.max_rel_error:.2g}, allowed {evidence.bound:.2g}"
        yield f"float      relative error {error} ({found.source})"
        yield f"inputs     {sets_text(evidence.sets)}"
    else:
        yield f"wrong      {evidence.reason} ({found.source})"
    for name, time_us in found.times.items():
        yield f"time       {time_us:.2f} us measured, {name}"
    best = edited.artifact.report.get("best")
    if best:
        said = SOURCES.get(best.get("source", ""), "")
        yield f"before     {best['time_us']:.2f} us {said}, when the artifact was made"
    for note in found.notes:
        yield f"note       {note}"


def _document(edited: EditedArtifact, found: Rerun) -> dict[str, Any]:
    evidence = found.evidence
    edits = [{"file": e.file, "use": e.use, "changes": list(e.changes)} for e in edited.edits]
    return {
        "schema": 1,
        "edits": edits,
        "passed": evidence.passed,
        "reason": str(evidence.reason or ""),
        "max_rel_error": evidence.max_rel_error,
        "float_bound": evidence.bound,
        "float_source": found.source,
        "float_sets": [s.name for s in evidence.sets],
        "times_us": dict(found.times),
        "best": edited.artifact.report.get("best"),
        "notes": list(found.notes),
    }
