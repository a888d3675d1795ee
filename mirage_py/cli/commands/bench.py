"""``mirage-py bench``: the benchmark suite."""

from __future__ import annotations

import importlib
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from mirage_py.cli.input.options import Seconds, json_option
from mirage_py.cli.shell.screen import Screen, stdout_to_stderr
from mirage_py.errors import InputError

SLOWER = 1
NOTHING_RAN = 6
INTERRUPTED = 130


def _names(_ctx: click.Context, _option: click.Parameter, text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


@click.command(short_help="Measure the benchmark suite beside eager, torch.compile and libraries.")
@click.option(
    "--suite",
    metavar="NAME",
    default="all",
    show_default=True,
    help="paper, models, prefill, decode, lora4k, large, misc, all or smoke.",
)
@click.option(
    "--only", metavar="KEYS", default="", callback=_names, help="Workloads such as gqa-b1,lora-b8."
)
@click.option(
    "--peers",
    metavar="LIST",
    default="",
    callback=_names,
    help="Peers such as compile,sdpa_flash; eager always runs.  [default: all]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    default="bench-out",
    show_default=True,
    help="Folder of the result files.",
)
@click.option(
    "--families",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Plans that `python -m benchmarks.suite.families DIR` has found; "
    "without it they are searched.",
)
@click.option(
    "--plans", type=click.IntRange(min=1), metavar="N", help="Measure at most N plans of a row."
)
@click.option(
    "--effort",
    type=click.Choice(["quick", "full"]),
    default="quick",
    show_default=True,
    help="How many plans are measured: 160 or 640.",
)
@click.option(
    "--backend",
    type=click.Choice(["triton", "cuda", "auto"]),
    default="triton",
    show_default=True,
    help="Whose plans are measured; auto: both, half of the plans each.",
)
@click.option(
    "--gpus", type=click.IntRange(min=1), metavar="N", help="Use at most N GPUs.  [default: all]"
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    default="",
    help="Measure on the GPUs of this scheduler's farm.",
)
@click.option(
    "--gpu-model", metavar="NAME", default="", help="Which model, of a farm that has several."
)
@click.option(
    "--seconds",
    type=Seconds(),
    metavar="S",
    help="End by then; rows that were not begun are listed.",
)
@click.option(
    "--row-seconds",
    type=Seconds(),
    metavar="S",
    default=300.0,
    show_default=True,
    help="Stop a row that takes longer.",
)
@click.option("--resume", is_flag=True, help="Keep the rows that the folder has already.")
@click.option("--commit", metavar="SHA", default="", help="Commit of a tree without git.")
@click.option(
    "--compare",
    nargs=2,
    type=click.Path(path_type=Path, exists=True),
    metavar="OLD NEW",
    help="Compare two result files instead; exit with 1 where a cell got slower.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    metavar="SHARE",
    default=0.05,
    show_default=True,
    help="How much slower a cell may get for --compare.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, exists=True),
    metavar="FILE",
    help="Draw a result file instead.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a report of the rows too, as one HTML file.",
)
@json_option
@click.pass_obj
def bench(
    screen: Screen,
    suite: str,
    only: tuple[str, ...],
    peers: tuple[str, ...],
    output: Path,
    families: Path | None,
    plans: int | None,
    effort: str,
    backend: str,
    gpus: int | None,
    scheduler: str,
    gpu_model: str,
    seconds: float | None,
    row_seconds: float,
    resume: bool,
    commit: str,
    compare: tuple[Path, Path] | None,
    tolerance: float,
    plot: Path | None,
    report: Path | None,
    json: bool,
) -> int:
    """Measure the benchmark suite beside eager, torch.compile and the vendor's libraries.

    Every GPU measures rows of its own; the result file is written after each. Without a GPU two
    small programs go through every stage but the clock: nothing is measured, which is said.

    \b
    mirage-py bench --suite paper -o out
    mirage-py bench --compare old/h200-suite.json out
    """  # noqa: D301  \b is click's mark for lines that stay as they are
    code = suite_code("benchmarks.suite.command")
    if compare:
        found = code.compared(*compare, tolerance)
        if json:
            screen.document(found.document())
        else:
            screen.out(found.text())
        return SLOWER if found.slower else 0
    if plot:
        for path in code.drawn(plot):
            screen.out(str(path))
        return 0
    with stdout_to_stderr():
        options = importlib.import_module("benchmarks.suite.options").Options(
            suite=suite,
            only=only,
            peers=peers,
            folder=output,
            families=families,
            plans=plans,
            effort=effort,
            backend=backend,
            gpus=gpus,
            scheduler=scheduler,
            gpu_model=gpu_model,
            seconds=seconds,
            row_seconds=row_seconds,
            resume=resume,
            commit=commit,
            command=_command_line(),
        )
        done = code.bench(options, lambda text: None if screen.quiet else screen.message(text))
    if report is not None and done.document["rows"]:
        from mirage_py.report.write import write_report

        write_report(done.files[0], report)
    if json:
        screen.document(done.document)
    else:
        screen.out(done.text())
    if done.interrupted:
        return INTERRUPTED
    return NOTHING_RAN if done.nothing_ran else 0


def suite_code(module: str) -> Any:
    """A module of the suite: it stands beside the package in a checkout, inside it in a wheel.

    Raises InputError where it is in neither place.
    """
    package = Path(__file__).resolve().parents[2]
    homes = (package.parent, package / "bundled")
    home = next((h for h in homes if (h / "benchmarks/suite/command.py").exists()), None)
    if home is None:
        raise InputError(
            "the benchmark suite is not here",
            where=", ".join(map(str, homes)),
            repair="run `python -m benchmarks` in a checkout of the project",
        )
    # First, so that no other folder called benchmarks, the user's own say, is taken for it.
    sys.path.insert(0, os.fspath(home))
    return importlib.import_module(module)


def _command_line() -> str:
    """How to do it again."""
    program = Path(sys.argv[0])
    is_module = program.name == "__main__.py" and program.parent.name == "benchmarks"
    words = ["python", "-m", "benchmarks"] if is_module else ["mirage-py"]
    return shlex.join([*words, *sys.argv[1:]])
