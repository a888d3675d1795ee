"""KernelBench's problems through the decorator, beside eager PyTorch and torch.compile.

Some take all memory, and some hang. Without a GPU each has a process of its own, with a time limit;
on one there are workers side by side that take one after the other (measured.py), and a worker that
breaks is replaced (shared_gpu.py says how they share the GPU's memory).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from math import inf
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click
import torch

import mirage_py
from benchmarks.farm import gpus
from benchmarks.farm.farm import Farm, Job, Outcome
from benchmarks.kernelbench import document
from benchmarks.kernelbench.measured import FOLDER, JOBS
from benchmarks.kernelbench.problem import Problem, every_kth, problems
from benchmarks.kernelbench.stages import run
from benchmarks.report.provenance import commit as commit_here
from mirage_py.pipeline.pipeline import partition_of
from mirage_py.runtime.eager.compiled import MODES

Json = dict[str, Any]

# Problems in a type of numbers, and what takes their rows as they come.
Work = Sequence[tuple[str, Problem]]
Take = Callable[[str, Problem, Json], None]

# Seconds of the clock for each of the CPU.
_PATIENCE = 20.0
# What a worker on a GPU is asked.
SERVICES = {
    "prepare": "benchmarks.kernelbench.measured:prepare",
    "measure": "benchmarks.kernelbench.measured:measure",
}
_COUNTS = ("MIRAGE_PY_WORKERS", "TORCHINDUCTOR_COMPILE_THREADS", "OMP_NUM_THREADS")


def _in_child(pipe: Connection, problem: Problem, options: Json, seconds: float) -> None:
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
    """The dry row of a problem, from a process of its own."""
    # All is loaded when a problem begins; no GPU would survive a fork.
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=_in_child, args=(there, problem, options, seconds))
    child.start()
    there.close()
    try:
        waits = seconds * _PATIENCE
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


def _dry_rows(work: Work, options: Json, limits: tuple[float, float], take: Take) -> Json:
    """One row after the other, until the end of all: the other problems have none."""
    limit, end = limits
    for kind, problem in work:
        left = end - time.monotonic()
        if left <= 0:
            break
        row = row_of(problem, {**options, "dtype": kind}, min(limit, left))
        if row["status"] != "timeout" or left >= limit:
            take(kind, problem, row)
    return {}


def _gpu_rows(
    work: Work, options: Json, limits: tuple[float, float], jobs: int, take: Take
) -> Json:
    """Rows as workers on the GPU make them; what is said of those that the end cut short."""
    limit, end = limits
    asked = {f"{problem.key}-{kind}": (kind, problem) for kind, problem in work}
    facts: Json = {}
    alone: dict[str, Json] = {}

    def ready(gpu: str, answer: Json) -> None:
        del gpu
        facts["machine"] = {**answer["machine"], **gpus.driver_facts()}

    def outcome(done: Outcome) -> None:
        kind, problem = asked[done.job.key]
        row = done.value or {
            "problem": problem.path.stem,
            "status": "crashed",
            "reason": done.reason,
        }
        if done.job.task.get("alone"):
            if row["status"] == "crashed":  # it was no better for it
                return
            row["alone"] = True
        elif row.get("short_of_memory") or "SIGKILL" in done.reason:
            alone[done.job.key] = {**done.job.task, "alone": True}
        take(kind, problem, row)

    with tempfile.TemporaryDirectory() as name:
        # Each worker has its cores, and all that it starts stays on them.
        each = str(max(1, len(os.sched_getaffinity(0)) // jobs))
        environment = dict.fromkeys(_COUNTS, each) | {FOLDER: name, JOBS: str(jobs)}
        farm = Farm(
            [next(iter(gpus.visible()), "")] * jobs, SERVICES["prepare"], limit, environment,
            ready, outcome, attempts=1,
        )  # fmt: skip
        common = {**options, "service": SERVICES["measure"]}
        tasks = {
            key: {**common, "dtype": kind, "level": p.level, "path": str(p.path.resolve())}
            for key, (kind, p) in asked.items()
        }
        with farm:
            deadline = None if end == inf else end
            left = farm.run([Job(key, task) for key, task in tasks.items()], deadline=deadline)
            if alone and not left:
                farm.run([Job(key, task) for key, task in alone.items()], deadline=deadline)
        for fault in farm.faults:
            click.echo(fault)
        said = {job.key: Path(name) / f"{job.key}.stages" for job in left}
        facts["cut_short"] = {
            key: path.read_text(encoding="utf-8").splitlines()
            for key, path in said.items()
            if path.exists()
        }
    return facts


@click.command()
@click.argument("checkout", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--level", default="1,2,3", help="Levels, with commas.")
@click.option("--only", default="", help="Keys of problems, with commas, in order: L1-33,L2-17.")
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
@click.option("--jobs", default=1, help="Workers side by side on a GPU, which time by turns.")
@click.option("--seconds", type=float, help="End after so many, with the rows that are there.")
@click.option(
    "--peers", default="compile", help=f"Of {', '.join(MODES)}, with commas: raced and timed."
)
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
    peers: str,
    output: Path | None,
) -> None:
    """Run the problems of CHECKOUT; with several types each has a file, OUT-bf16.json."""
    wanted = [name for name in only.split(",") if name]
    known = problems(checkout, [int(n) for n in level.split(",")])
    by_key = {p.key: p for p in known}
    missing = [name for name in wanted if name not in by_key]
    if missing:
        raise click.BadParameter(f"no such problem in {checkout}: {', '.join(missing)}")
    # Named ones in the order they are named in: a run may end before the last.
    chosen = [by_key[name] for name in wanted] or known
    chosen = every_kth(chosen, every) if every > 1 else chosen
    end = inf if seconds is None else time.monotonic() + seconds
    found: dict[str, dict[str, Json]] = {kind: {} for kind in dtype.split(",")}
    for path in rows:
        held = json.loads(path.read_text(encoding="utf-8"))
        known_rows = held["rows"].items()
        kept = {key: row for key, row in known_rows if any(p.key == key for p in chosen)}
        found.get(held["options"]["dtype"], {}).update(kept)
    torch.set_num_threads(1 if dry else torch.get_num_threads())
    facts: Json = {
        "commit": commit_here(commit),
        "torch": torch.__version__,
        "dry": dry,
        "limit_s": limit,
        "every": every,
    }
    options: Json = {"dry": dry, "budget": budget}
    options |= {"search": search, "target": target} if dry else {"peers": peers.split(",")}

    def write(kind: str) -> None:
        if output is not None:
            name = output if "," not in dtype else output.with_stem(f"{output.stem}-{kind}")
            not_run = [p.key for p in chosen if p.key not in found[kind]]
            asked = {"options": {"dtype": kind, **options}, "not_run": not_run}
            in_order = {p.key: found[kind][p.key] for p in chosen if p.key in found[kind]}
            document.write(name, {**facts, **asked}, in_order)

    def take(kind: str, problem: Problem, row: Json) -> None:
        found[kind][problem.key] = {**row, "commit": facts["commit"]}
        click.echo(f"{problem.key} {row['problem']} {kind}: {document.row_line(row)}")
        write(kind)

    work = [(kind, p) for p in chosen for kind in found if p.key not in found[kind]]
    if dry:
        _warm()
        facts |= _dry_rows(work, options, (limit, end), take)
    elif work:
        facts |= _gpu_rows(work, options, (limit, end), jobs, take)
    for kind, own in found.items():
        write(kind)
        for line in document.lines(own):
            click.echo(line)
