"""``mirage-py show``: an artifact or µGraph in another form."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from mirage_py.cli.shell.screen import Screen, stdout_to_stderr

if TYPE_CHECKING:
    from mirage_py.cli.input.subject import Subject
    from mirage_py.ugraph.ir.plan import Plan
    from mirage_py.ugraph.ir.ugraph import UGraph

_NAMES = {"triton": "Triton", "cuda": "CUDA"}
BACKENDS = tuple(_NAMES)


@click.command(short_help="Print an artifact or µGraph as text, picture, Triton or CUDA.")
@click.argument("subject", metavar="ARTIFACT|UGRAPH", type=click.Path())
@click.option(
    "--as",
    "form",
    type=click.Choice(["text", "svg", "mermaid", *BACKENDS]),
    default="text",
    show_default=True,
    help="The form to print.",
)
@click.pass_obj
def show(screen: Screen, subject: str, form: str) -> None:
    """Print an artifact or µGraph as text, picture, Triton or CUDA.

    text reads back as a µGraph; svg and mermaid are pictures; triton and cuda are the source of the
    kernels for that back end.
    A spec, or an artifact whose result is the original program, shows as the text of its program.

    \b
    mirage-py show demo-out --as svg > ugraph.svg
    """  # noqa: D301  \b is click's mark for lines that stay as they are
    with stdout_to_stderr():
        from mirage_py.cli.input.subject import read_subject

        text = _rendered(read_subject(subject), form)
    screen.out(text.rstrip("\n"))


def _rendered(subject: Subject, form: str) -> str:
    from mirage_py.errors import InputError
    from mirage_py.ugraph.text.text_form import format_program, format_ugraph

    if subject.ugraph is None:
        if form == "text":
            return format_program(subject.program)
        raise InputError(
            f"there is no µGraph to show as {form}",
            where=subject.name,
            why="it holds a program only",
            repair="name an artifact or a µGraph, or use --as text",
        )
    if form == "svg":
        from mirage_py.ugraph.text.svg import format_svg

        return format_svg(subject.ugraph)
    if form == "mermaid":
        from mirage_py.ugraph.text.mermaid import format_mermaid

        return format_mermaid(subject.ugraph)
    if form in BACKENDS:
        return _kernels(subject, form)
    return format_ugraph(subject.ugraph)


def _kernels(subject: Subject, backend: str) -> str:
    """The source of the kernels; of an artifact of another back end what this one makes of it."""
    from mirage_py.runtime.base.emission import emit_kernels

    assert subject.ugraph is not None
    plan = subject.plan or _untuned(subject.name, subject.ugraph, backend)
    plan = replace(plan, backend=backend)
    return "\n\n".join(kernel.source.rstrip("\n") for kernel in emit_kernels(plan))


def _untuned(name: str, ugraph: UGraph, backend: str) -> Plan:
    """A µGraph alone says nothing of its launch: options that every kernel runs with."""
    from mirage_py.errors import InputError
    from mirage_py.ugraph.ir.launch_config import LaunchConfig
    from mirage_py.ugraph.ir.plan import Plan
    from mirage_py.ugraph.ir.ugraph import BlockGraph

    options = []
    for kernel in ugraph.kernels:
        loops = 0
        if isinstance(kernel, BlockGraph):
            loops = sum(section.loop is not None for section in kernel.sections)
            if not kernel.is_instance:
                raise InputError(
                    f"a family has no {_NAMES[backend]} source",
                    where=name,
                    why=f"tiles of kernel {kernel.name} are still open ('?')",
                    repair="write numbers for them, or show an artifact",
                )
        options.append(LaunchConfig(num_stages=(2,) * loops))
    return Plan(ugraph, tuple(options))
