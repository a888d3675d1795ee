"""KernelBench's problems through the decorator, beside eager PyTorch and torch.compile.

Each problem has a process of its own, with a time limit: some take all memory, and some hang.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click
import torch

import mirage_py
from benchmarks.kernelbench import document
from benchmarks.kernelbench.problem import Problem, problems
from benchmarks.kernelbench.stages import run
from benchmarks.report.provenance import commit as commit_here
from mirage_py.pipeline.pipeline import partition_of

Json = dict[str, Any]

# Seconds of the clock for each of the CPU.
_PATIENCE = 20.0


def _in_child(pipe: Connection, problem: Problem, options: Json, seconds: float) -> None:
    if options["dry"]:
        # Of the CPU: what else the machine does changes no row.
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), resource.RLIM_INFINITY))
    try:
        pipe.send(run(problem, options))
    except Exception as error:  # noqa: BLE001  whatever a problem does is its row
        reason = f"{type(error).__name__}: {error}"[:300]
        pipe.send({"problem": problem.path.stem, "status": "crashed", "reason": reason})


def _warm() -> None:
    """torch.export imports much at its first use: once here, not in every child."""
    with torch.no_grad():
        program = mirage_py.trace(torch.nn.Conv2d(2, 3, 3, padding=1), torch.rand(1, 2, 5, 5))
        partition_of(program)


def row_of(problem: Problem, options: Json, seconds: float) -> Json:
    """The row of a problem, from a process of its own."""
    # A GPU does not survive a fork; without one that is much faster.
    context: Any = multiprocessing.get_context("fork" if options["dry"] else "spawn")
    here, there = context.Pipe()
    child = context.Process(target=_in_child, args=(there, problem, options, seconds))
    child.start()
    there.close()
    try:
        waits = seconds * (_PATIENCE if options["dry"] else 1.0)
        row: Json = here.recv() if here.poll(waits) else {"status": "timeout"}
    except EOFError:
        child.join()
        late = child.exitcode == -signal.SIGXCPU
        row = {"status": "timeout" if late else "crashed", "reason": "the process died"}
    child.kill()
    child.join()
    if row["status"] == "timeout":
        row["reason"] = f"not done in {seconds:g} s"
    return {"problem": problem.path.stem, **row}


@click.command()
@click.argument("checkout", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--level", default="1,2,3", help="Levels, with commas.")
@click.option("--only", default="", help="Keys of problems, with commas: L1-33,L2-17.")
@click.option("--dtype", default="fp32", help="fp32, fp16 or bf16, several with commas.")
@click.option("--dry", is_flag=True, help="Without a GPU: nothing is computed at real sizes.")
@click.option("--search", is_flag=True, help="With --dry: search and verify at small sizes.")
@click.option("--target", default="h200", help="What a dry search is for.")
@click.option("--budget", type=float, help="Seconds of each search.")
@click.option("--limit", type=float, default=120.0, help="Seconds of each problem; dry: of CPU.")
@click.option(
    "--rows",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="A file of an earlier run, whose rows are not run again; several times.",
)
@click.option("--commit", default="", help="What is measured, where there is no checkout.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write a JSON file.")
def main(
    checkout: Path,
    level: str,
    only: str,
    dtype: str,
    dry: bool,
    search: bool,
    target: str,
    budget: float | None,
    limit: float,
    rows: tuple[Path, ...],
    commit: str,
    output: Path | None,
) -> None:
    """Run the problems of CHECKOUT, one after the other."""
    wanted = [name for name in only.split(",") if name]
    every = problems(checkout, [int(n) for n in level.split(",")])
    chosen = [p for p in every if not wanted or p.key in wanted]
    earlier: dict[str, dict[str, Json]] = {kind: {} for kind in dtype.split(",")}
    for path in rows:
        held = json.loads(path.read_text(encoding="utf-8"))
        earlier.setdefault(held["options"]["dtype"], {}).update(held["rows"])
    torch.set_num_threads(1 if dry else torch.get_num_threads())
    if dry:
        _warm()
    facts: Json = {
        "commit": commit_here(commit),
        "torch": torch.__version__,
        "dry": dry,
        "limit_s": limit,
    }
    for kind in dtype.split(","):
        options = {"dtype": kind, "dry": dry, "search": search, "target": target, "budget": budget}
        found: dict[str, Json] = {}
        for problem in chosen:
            row = earlier[kind].get(problem.key) or row_of(problem, options, limit)
            found[problem.key] = row
            click.echo(f"{problem.key} {row['problem']}: {row['status']} {row.get('reason', '')}")
            if output is not None:
                name = output if "," not in dtype else output.with_stem(f"{output.stem}-{kind}")
                document.write(name, {**facts, "options": options}, found)
        for line in document.lines(found):
            click.echo(line)
