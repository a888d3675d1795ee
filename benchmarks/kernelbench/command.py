"""KernelBench's problems through the decorator, beside eager PyTorch and torch.compile.

Each problem has a process of its own, with a time limit: some take all memory, and some hang. On a
GPU several may run side by side (shared_gpu.py says how they share it).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from math import inf
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click
import torch

import mirage_py
from benchmarks.kernelbench import document
from benchmarks.kernelbench.problem import Problem, every_kth, problems
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


def _context(*, dry: bool) -> Any:
    # A GPU does not survive a fork: without one all is loaded when a problem begins, and on one it
    # is loaded once by a server that never touches the GPU.
    if dry:
        return multiprocessing.get_context("fork")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.kernelbench.stages"])
    return context


def row_of(problem: Problem, options: Json, seconds: float) -> Json:
    """The row of a problem, from a process of its own."""
    context = _context(dry=options["dry"])
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


def _rows(
    chosen: Sequence[Problem],
    earlier: Mapping[str, Json],
    options: Json,
    limits: tuple[float, float],
    jobs: int,
) -> Iterator[tuple[Problem, Json]]:
    """Problems and their rows as they come: those of earlier runs, and what ``jobs`` processes make
    of the others. ``limits`` are the seconds of a problem and the end of all: one that it cuts
    short has no row, so that a later run begins with it.
    """
    limit, end = limits
    yield from ((p, earlier[p.key]) for p in chosen if p.key in earlier)
    # Compilers of a process share what cores there are.
    workers = str(max(1, len(os.sched_getaffinity(0)) // jobs))
    if jobs > 1:
        os.environ |= dict.fromkeys(("MIRAGE_PY_WORKERS", "TORCHINDUCTOR_COMPILE_THREADS"), workers)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:

        def made(problem: Problem) -> tuple[Problem, Json | None]:
            left = end - time.monotonic()
            if left <= 0:
                return problem, None
            row = row_of(problem, {**options, "folder": folder}, min(limit, left))
            is_cut = row["status"] == "timeout" and left < limit
            return problem, None if is_cut else row

        others = [p for p in chosen if p.key not in earlier]
        for done in as_completed([pool.submit(made, p) for p in others]):
            problem, row = done.result()
            if row is not None:
                yield problem, row


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
@click.option("--every", default=1, help="Of each level every k-th problem, the levels by turns.")
@click.option("--jobs", default=1, help="Processes side by side on a GPU, which time by turns.")
@click.option("--seconds", type=float, help="End after so many, with the rows that are there.")
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
    every: int,
    jobs: int,
    seconds: float | None,
    output: Path | None,
) -> None:
    """Run the problems of CHECKOUT."""
    wanted = [name for name in only.split(",") if name]
    known = problems(checkout, [int(n) for n in level.split(",")])
    chosen = [p for p in known if not wanted or p.key in wanted]
    chosen = every_kth(chosen, every) if every > 1 else chosen
    end = inf if seconds is None else time.monotonic() + seconds
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
        for problem, row in _rows(chosen, earlier[kind], options, (limit, end), jobs):
            found[problem.key] = row
            click.echo(f"{problem.key} {row['problem']}: {row['status']} {row.get('reason', '')}")
            if output is not None:
                name = output if "," not in dtype else output.with_stem(f"{output.stem}-{kind}")
                not_run = [p.key for p in chosen if p.key not in found]
                document.write(name, {**facts, "options": options, "not_run": not_run}, found)
        for line in document.lines(found):
            click.echo(line)
