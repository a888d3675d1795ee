"""``mirage-py superoptimize``: the main job."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mirage_py.cli.input.options import (
    Seconds,
    inputs_option,
    json_option,
    limits_option,
    seed_option,
    sizes_option,
    target_option,
)
from mirage_py.cli.shell.interrupts import stop_on_interrupt
from mirage_py.cli.shell.screen import Screen, stdout_to_stderr
from mirage_py.errors import MirageError

if TYPE_CHECKING:
    from mirage_py.pipeline.selection.request import Request
    from mirage_py.result import Result
    from mirage_py.ugraph.ir.program import Program

NO_IMPROVEMENT = 3
NOTHING_RAN = 6
INTERRUPTED = 130


@click.command(short_help="Find faster kernels for a program, with evidence that they are right.")
@click.argument("spec", metavar="SPEC", type=click.Path())
@target_option()
@click.option(
    "--backend",
    type=click.Choice(["auto", "triton", "cuda"]),
    default="auto",
    show_default=True,
    help="Language of the kernels.",
)
@click.option(
    "--effort",
    type=click.Choice(["none", "quick", "full"]),
    default="quick",
    show_default=True,
    help="How many candidates are compared; with none, nothing is measured.",
)
@click.option(
    "--budget",
    type=Seconds(),
    metavar="SECONDS",
    help="Stop after this time and keep the best result so far.",
)
@seed_option
@click.option(
    "--fp32-precision",
    type=click.Choice(["ieee", "tf32"]),
    help="Precision of f32 matmuls.  [default: torch's setting; of a math spec, ieee]",
)
@click.option(
    "--invariant",
    "rows",
    multiple=True,
    metavar="DIM",
    help="Make each row along DIM bitwise independent of the number of rows; repeatable.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the artifact.  [default: ./NAME.mirage]",
)
@click.option(
    "--journal",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Save the state of the search here, and resume from it.",
)
@limits_option()
@click.option(
    "--trace-stages",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write a page for each stage here, showing what it changed; ignores the cache.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write a report, as one HTML file; refused programs get one too.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    default="",
    help="Search and compile on the farm of this scheduler; measure there if there is no GPU here.",
)
@click.option("--no-cache", is_flag=True, help="Search even if the result is cached.")
@json_option
@click.option("--require-speedup", is_flag=True, help="Exit with 3 unless the result is faster.")
@inputs_option
@sizes_option
@click.pass_obj
def superoptimize(
    screen: Screen,
    spec: str,
    target: str,
    backend: str,
    effort: str,
    budget: float | None,
    seed: int,
    fp32_precision: str | None,
    rows: tuple[str, ...],
    output: Path | None,
    journal: Path | None,
    limits: tuple[str, ...],
    trace_stages: Path | None,
    report: Path | None,
    scheduler: str,
    no_cache: bool,
    json: bool,
    require_speedup: bool,
    inputs: tuple[str, ...],
    sizes: tuple[str, ...],
) -> int:
    """Find faster kernels for a program, with evidence that they are right.

    SPEC is a math spec (*.math), or module.py:function with an --input for each argument (or with a
    function example_inputs() in the module).

    \b
    mirage-py superoptimize examples/rmsnorm_matmul.math --target h200
    mirage-py superoptimize model.py:mlp --input x=f16[16,4096] --input w=f16[4096,4096]
    """  # noqa: D301  \b is click's mark for lines that stay as they are
    command = _command(spec, target, backend, effort, budget, seed, limits, inputs, sizes)
    with stdout_to_stderr(), screen.progress() as progress, _reported(report, spec, command):
        from mirage_py.cli.input.output_folder import check_output, save_result
        from mirage_py.cli.input.source import read_source

        progress("reading")
        source = read_source(spec, inputs=inputs, sizes=sizes)
        folder = output or Path(f"{source.program.name}.mirage")
        check_output(folder)
        # After the input was found right: this import takes longer than reading it.
        from mirage_py.cli.input.search_limits import read_limits
        from mirage_py.pipeline.selection.request import Request
        from mirage_py.pipeline.trace.trace import Trace

        bounds = read_limits(limits)
        request = Request(
            target.lower(),
            backend,
            effort,
            budget,
            seed,
            limits=bounds,
            baselines=source.baselines or None,
            progress=progress,
            journal=journal,
            fp32_precision=fp32_precision,
            rows=rows,
            trace=Trace(trace_stages),
            scheduler=scheduler,
        )
        result = _result_of(source.program, request, no_cache=no_cache)
        progress("saving")
        asked = {"command": command, "source": {"spec": spec, "text": source.text}}
        result = replace(result, record={**result.record, **asked})
        # An earlier artifact is worth more than the news that nothing was found yet.
        stays = result.interrupted and result.plan is None and folder.exists()
        if not stays:
            result = save_result(result, folder)
        if report is not None:
            result.report(report)
    if stays:
        screen.message(f"no kernel was found yet: {folder} stays as it was")
    _report(screen, result, json=json)
    return _exit_code(screen, result, require_speedup=require_speedup, journal=journal)


def _result_of(program: Program, request: Request, *, no_cache: bool) -> Result:
    """A cached result, one of a farm's GPU, or one of a search here."""
    from mirage_py.cache.cached_results import cached_result, keep
    from mirage_py.pipeline import pipeline
    from mirage_py.pipeline.cached_pipeline import question_of
    from mirage_py.pipeline.farmed import measured_there, optimise_there
    from mirage_py.settings import Settings

    with_cache = not (no_cache or Settings.from_env().no_cache)
    there = measured_there(program, request)
    question = there or question_of(program, request)
    # A known result has no stages to look at.
    known = cached_result(question) if with_cache and request.trace.folder is None else None
    if known is not None:
        return _under_name(known, program.name)
    if there is not None:
        return optimise_there(there, request, cache=with_cache)
    with stop_on_interrupt() as should_stop:
        result = pipeline.run(program, replace(request, should_stop=should_stop))
    if with_cache and not result.interrupted and not _nothing_ran(result):
        keep(question, result)
    return result


def _command(
    spec: str,
    target: str,
    backend: str,
    effort: str,
    budget: float | None,
    seed: int,
    limits: tuple[str, ...],
    inputs: tuple[str, ...],
    sizes: tuple[str, ...],
) -> str:
    """The command that asks the same again; what is by default is left out."""
    words = ["mirage-py", "superoptimize", spec]
    settings = (
        ("--target", target, "auto"),
        ("--backend", backend, "auto"),
        ("--effort", effort, "quick"),
        ("--budget", budget, None),
        ("--seed", seed, 0),
    )
    words += [str(w) for name, value, usual in settings if value != usual for w in (name, value)]
    for name, values in (("--input", inputs), ("--size", sizes), ("--limit", limits)):
        words += [word for value in values for word in (name, value)]
    return shlex.join(words)


@contextmanager
def _reported(report: Path | None, spec: str, command: str) -> Iterator[None]:
    """An error of ours is reported on, too, before it goes on."""
    try:
        yield
    except MirageError as error:
        if report is not None:
            from mirage_py.report.refused_report import refusal_of
            from mirage_py.report.write import write_refused

            write_refused(refusal_of(spec, error, command=command, source=_text_of(spec)), report)
        raise


def _text_of(spec: str) -> str:
    """The file that SPEC names, as far as it can be read."""
    path = Path(spec.rpartition(":")[0] or spec)
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError, ValueError):
        return ""


def _under_name(result: Result, name: str) -> Result:
    """A known result says so where it was found under another name, which its kernels have."""
    found_as = name if result.ugraph is None else result.ugraph.program.name
    if found_as == name:
        return result
    note = f"the same program was searched as '{found_as}', and its kernels are called so"
    return replace(result, notes=(*result.notes, note))


def _report(screen: Screen, result: Result, *, json: bool) -> None:
    if json:
        screen.document(result.document())
        return
    from mirage_py.cli.explain.summary import summary
    from mirage_py.cli.input.output_folder import kernel_files

    files = [] if result.artifact is None else kernel_files(result.artifact)
    screen.out(summary(result, files))
    for candidate in result.candidates:
        if screen.verbose and not candidate.passed:
            screen.message(f"dropped {candidate.timing.name}: {candidate.reason}")


def _nothing_ran(result: Result) -> bool:
    """Whether there were candidates, and none of them was right."""
    dropped = bool(result.candidates) and not any(c.passed for c in result.candidates)
    return result.plan is None and dropped


def _exit_code(
    screen: Screen, result: Result, *, require_speedup: bool, journal: Path | None
) -> int:
    if result.interrupted:
        goes_on = (
            "" if journal else "\n  try: with --journal FILE the next search goes on from here"
        )
        screen.message(f"interrupted: this is the best so far{goes_on}")
        return INTERRUPTED
    if _nothing_ran(result):
        screen.message(
            f"none of {len(result.candidates)} candidates ran and gave the right result: the "
            "original program stays\n  try: mirage-py -v superoptimize ... says why of each"
        )
        return NOTHING_RAN
    if require_speedup and (result.plan is None or result.speedup <= 1.0):
        stays = "the original program stays" if result.plan is None else "the artifact has its best"
        screen.message(f"no improvement, {result.speedup:.2f}x: {stays}")
        return NO_IMPROVEMENT
    return 0
