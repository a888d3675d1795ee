"""``mirage-py explain``: why a result is equal, how it was found and what was rejected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from mirage_py.arguments import path_of
from mirage_py.cli.input.options import (
    inputs_option,
    json_option,
    limits_option,
    seed_option,
    sizes_option,
    target_option,
)
from mirage_py.cli.shell.screen import Screen, stdout_to_stderr

if TYPE_CHECKING:
    from mirage_py.cli.explain.explanation import Explanation
    from mirage_py.questions.answer import Answer


@click.command(short_help="Say why a result is equal, how it was found, what was rejected.")
@click.argument("subject", metavar="ARTIFACT|SPEC", type=click.Path())
@target_option("GPU to search for, for a spec; an artifact has its own.")
@seed_option
@limits_option("Bound of the search, as in max_tensors=6000; for a spec.")
@inputs_option
@sizes_option
@click.option(
    "--why-not",
    "questions",
    multiple=True,
    metavar="QUESTION",
    help="Why not split, 'tile n 64', cuda, 'two kernels', 8 warps, a plan's number ...",
)
@json_option
@click.pass_obj
def explain(
    screen: Screen,
    subject: str,
    target: str,
    seed: int,
    limits: tuple[str, ...],
    inputs: tuple[str, ...],
    sizes: tuple[str, ...],
    questions: tuple[str, ...],
    json: bool,
) -> None:
    """Say why a result is equal, how it was found and what was rejected.

    For an artifact: what its kernels do, the evidence that they are right, the search from the
    first candidate to the winner, and the runners-up. For a spec or module.py:function: the same
    search, without measuring, and what would have to change if it finds nothing. For a µGraph: what
    its kernels do. With --why-not: why another kernel did not win, and what would have to change.

    \b
    mirage-py explain softmax.mirage
    mirage-py explain softmax.mirage --why-not split --why-not 'tile b 64'
    mirage-py explain examples/attention.math --target a100 --limit max_kernels=1
    """  # noqa: D301  \b is click's mark for lines that stay as they are
    if questions:
        with stdout_to_stderr(), screen.progress() as progress:
            progress("reading")
            answers = _answers(subject, questions, target, seed, limits, inputs, sizes, progress)
        if json:
            screen.document({"schema": 1, "answers": [a.document() for a in answers]})
            return
        from mirage_py.cli.explain.answer_text import answer_text

        screen.out("\n\n".join(map(answer_text, answers)))
        return
    with stdout_to_stderr(), screen.progress() as progress:
        progress("reading")
        if path_of("subject", subject).is_dir():
            _refuse_options(subject, target, limits, inputs, sizes)
            explanation = _of_artifact(subject)
        else:
            explanation = _of_search(subject, target.lower(), seed, limits, inputs, sizes, progress)
    if json:
        screen.document(explanation.document())
        return
    from mirage_py.cli.explain.explanation_text import explanation_text

    screen.out(explanation_text(explanation))


def _refuse_options(
    subject: str,
    target: str,
    limits: Sequence[str],
    inputs: Sequence[str],
    sizes: Sequence[str],
) -> None:
    from mirage_py.errors import InputError

    given: Mapping[str, object] = {
        "--target": target != "auto",
        "--limit": limits,
        "--size": sizes,
        "--input": inputs,
    }
    for option, value in given.items():
        if value:
            raise InputError(
                f"{option} is for a search that is yet to be made",
                where=subject,
                why="an artifact holds the search that was made for it",
                repair=f"leave {option} out, or name a spec",
            )


def _answers(
    subject: str,
    questions: Sequence[str],
    target: str,
    seed: int,
    limits: Sequence[str],
    inputs: Sequence[str],
    sizes: Sequence[str],
    progress: Callable[[str], None],
) -> list[Answer]:
    """An answer to each question about an artifact, or about what a search finds for a spec."""
    if path_of("subject", subject).is_dir():
        _refuse_options(subject, target, limits, inputs, sizes)
        from mirage_py.cli.explain.asked import of_artifact

        about = of_artifact(subject, seed, progress)
    else:
        from mirage_py.cli.explain.asked import of_spec

        about = of_spec(subject, target.lower(), seed, limits, inputs, sizes, progress)
    from mirage_py.questions.why_not import why_not

    return [why_not(about, text) for text in questions]


def _of_artifact(subject: str) -> Explanation:
    from mirage_py.cli.explain.explanation import of_artifact
    from mirage_py.runtime.store.artifact import load_artifact

    return of_artifact(subject, load_artifact(subject))


def _of_search(
    subject: str,
    target: str,
    seed: int,
    limits: Sequence[str],
    inputs: Sequence[str],
    sizes: Sequence[str],
    progress: Callable[[str], None],
) -> Explanation:
    from mirage_py.cli.input.subject import read_subject

    held = read_subject(subject, inputs=inputs, sizes=sizes)
    from mirage_py.cli.explain.explanation import of_search, of_ugraph

    if held.ugraph is not None:
        return of_ugraph(subject, held.ugraph)
    from mirage_py.cli.input.search_limits import read_limits

    bounds = read_limits(limits)
    # After the input was found right: this import takes longer than reading it.
    from mirage_py.pipeline.pipeline import Request, rank_plans, resolve_target

    request = Request(target, "triton", "none", seed=seed, limits=bounds, progress=progress)
    chosen, _ = resolve_target(target)
    return of_search(subject, rank_plans(held.program, chosen, request))
