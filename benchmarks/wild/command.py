"""Functions of real models through the decorator and torch.compile: what serves each, and why.

python -m benchmarks.wild --dry -o benchmarks/results/wild-cpu.json   # without a GPU
python -m benchmarks.wild --docs benchmarks/results/wild-cpu.json     # the tables of the page
python -m benchmarks.wild -o OUT.json            # on GPUs, at real sizes; --docs takes it, too
python -m benchmarks.wild --only latent_attention@B=1:S=8192          # at others
python -m benchmarks.wild --join LATER.json -o OUT.json               # its rows instead of OUT's

A dry run takes the small sizes on the CPU: programs are traced, cut and searched as for a GPU, and
what was found runs as its program in PyTorch. On GPUs both ways are timed beside eager,
torch.compile in two modes, and SDPA or FlexAttention where a program spells attention out.
"""

from __future__ import annotations

import datetime as dt
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import click

from benchmarks.farm import gpus
from benchmarks.farm.farm import Farm, Job, Outcome
from benchmarks.report import marks
from benchmarks.report.provenance import commit as commit_here
from benchmarks.report.record import SCHEMA
from benchmarks.wild import table
from benchmarks.wild.catalogue import program_at, programs
from benchmarks.wild.summary import is_right, joined, measured_summary, summary
from mirage_py.runtime.base.atomic import write_text

Json = dict[str, Any]

_ROW_S = 300.0
# Of a row, for the clock.
_TIMING_S = 6.0
PAGE = Path(__file__).resolve().parents[2] / "docs/reference/wild.md"


def rows_of(names: list[str], budget_s: float, jobs: int) -> Iterator[Json]:
    """Dry rows as they come, each process one at a time."""
    if jobs == 1:
        yield from (_dry(name, budget_s) for name in names)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        for done in as_completed([pool.submit(_dry, name, budget_s) for name in names]):
            yield done.result()


def _dry(name: str, budget_s: float) -> Json:
    import torch

    from benchmarks.wild.dry_row import dry_row

    torch.set_num_threads(1)
    return dry_row(program_at(name), budget_s)


def chosen(only: str) -> list[str]:
    """Names of programs and families, as they are asked for: a run on a GPU may be cut short. All
    where ``only`` is empty. Raises click's UsageError.
    """
    known = programs()
    asked = [name for name in only.split(",") if name]
    families = dict.fromkeys(program.family for program in known.values())
    unknown = [name for name in asked if name not in families and not _is_known(name)]
    if unknown:
        raise click.UsageError(f"there is no {', '.join(unknown)}")
    members = {f: [n for n, p in known.items() if p.family == f] for f in families}
    found = (n for name in asked or families for n in members.get(name, [name]))
    return list(dict.fromkeys(found))


def _is_known(name: str) -> bool:
    """Whether there is such a program, at sizes that it has."""
    try:
        program_at(name)
    except (KeyError, ValueError):
        return False
    return True


def measured(
    names: list[str],
    output: Path | None,
    effort: str,
    budget_s: float,
    seconds: float | None,
    jobs: int,
    commit: str,
) -> None:
    """Rows of GPUs, written as they come; exits with 1 where one failed or was wrong."""
    found: dict[str, Json] = {}
    failed: dict[str, str] = {}
    head: Json = {
        "schema": SCHEMA,
        "command": f"python -m benchmarks.wild {' '.join(sys.argv[1:])}",
        "commit": commit_here(commit),
    }

    def ready(gpu: str, answer: Json) -> None:
        head["machine"] = {**answer["machine"], **gpus.driver_facts()}
        click.echo(f"GPU {gpu}: {answer['machine']['gpu']}")

    def outcome(done: Outcome) -> None:
        key = done.job.key
        if done.value is None:
            failed[key] = done.reason
            click.echo(f"{key} failed: {done.reason}")
        else:
            found[key] = done.value["row"]
            click.echo(table.measured_line(found[key]))
        write()

    def write(not_run: list[str] | None = None) -> None:
        rows = [found[name] for name in names if name in found]
        document = {**head, "rows": rows, "failed": failed, "not_run": not_run or []}
        document["summary"] = measured_summary(rows)
        if output is not None:
            write_text(output, json.dumps(document, indent=1) + "\n")

    # Searches and compilers run side by side; kernels are timed by one process after the other.
    visible = gpus.visible() * jobs
    workers = str(max(1, len(os.sched_getaffinity(0)) // len(visible)))
    farm = Farm(
        visible,
        "benchmarks.suite.row_worker:prepare",
        _ROW_S,
        dict.fromkeys(("MIRAGE_PY_WORKERS", "TORCHINDUCTOR_COMPILE_THREADS"), workers),
        ready,
        outcome,
    )
    service = {"service": "benchmarks.wild.measured_row:measure", "timing_s": _TIMING_S}
    asked = {"effort": effort, "budget": budget_s}
    rows_asked = [Job(name, {**service, **asked, "program": name}) for name in names]
    deadline = None if seconds is None else time.monotonic() + seconds
    with farm:
        left = farm.run(rows_asked, deadline=deadline)
    write([job.key for job in left])
    rows = [found[name] for name in names if name in found]
    click.echo(json.dumps(measured_summary(rows), indent=1))
    if failed or any(set(row["faults"]) & {"decorator", "backend"} for row in rows):
        sys.exit(1)


def fill_page(document: Json, page: Path = PAGE) -> None:
    """Put the tables of a dry run, or that of a GPU, into the page."""
    text = page.read_text(encoding="utf-8")
    made = {
        "wild-counts": table.counts_table,
        "wild-reasons": table.reasons_table,
        "wild-programs": table.programs_table,
    }
    if "machine" in document:
        made = {"wild-gpu": table.measured_table}
    for mark, lines in made.items():
        text = marks.filled(text, mark, lines(document))
    page.write_text(text, encoding="utf-8")


@click.command()
@click.option("--dry", is_flag=True, help="On the CPU, at small sizes: nothing is measured.")
@click.option(
    "--only", default="", help="Programs (NAME, NAME@T=1024:B=1) or families, with commas."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write a JSON file.")
@click.option("--budget", type=float, default=8.0, help="Seconds for each search; 0: none.")
@click.option("--effort", type=click.Choice(["quick", "full"]), default="quick")
@click.option("--seconds", type=float, help="Seconds for the whole run on GPUs.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, help="Processes; on GPUs for each.")
@click.option("--commit", default="", help="What is measured, where there is no checkout.")
@click.option(
    "--join", type=click.Path(exists=True, path_type=Path), help="Rows to put into the JSON file."
)
@click.option("--docs", type=click.Path(exists=True, path_type=Path), help="Fill the page.")
def main(
    dry: bool,
    only: str,
    output: Path | None,
    budget: float,
    effort: str,
    seconds: float | None,
    jobs: int,
    commit: str,
    join: Path | None,
    docs: Path | None,
) -> None:
    """Take every program of the suite, and say what serves it."""
    if join is not None:
        if output is None or not output.exists():
            raise click.UsageError("--join needs a file to put rows into: -o FILE")
        both = [json.loads(path.read_text(encoding="utf-8")) for path in (output, join)]
        write_text(output, json.dumps(joined(*both), indent=1) + "\n")
        return
    if docs is not None:
        fill_page(json.loads(docs.read_text(encoding="utf-8")))
        return
    if not dry:
        if not gpus.visible():
            raise click.UsageError("there is no NVIDIA GPU here: pass --dry")
        measured(chosen(only), output, effort, budget, seconds, jobs, commit)
        return
    names = chosen(only)
    head = {
        "schema": SCHEMA,
        "command": f"python -m benchmarks.wild {' '.join(sys.argv[1:])}",
        "commit": commit_here(commit),
        "budget_s": budget,
    }
    found: dict[str, Json] = {}
    for row in rows_of(names, budget, jobs):
        found[row["program"]] = row
        click.echo(table.row_line(row))
        if output is not None:
            write_text(output, json.dumps(_document(head, names, found), indent=1) + "\n")
    document = _document(head, names, found)
    click.echo(json.dumps(document["summary"], indent=1))
    if not all(is_right(row) for row in document["rows"]):
        sys.exit(1)


def _document(head: Json, names: list[str], found: dict[str, Json]) -> Json:
    rows = [found[name] for name in names if name in found]
    today = dt.datetime.now(tz=dt.UTC).strftime("%Y-%m-%d")
    return {**head, "date": today, "summary": summary(rows), "rows": rows}


if __name__ == "__main__":
    main()
