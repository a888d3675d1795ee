"""Whole models, compiled with this backend of torch.compile, against PyTorch's own.

python -m benchmarks.whole_models -o benchmarks/results/h200-whole-models.json

Each model and batch is a row, and each GPU measures rows of its own. A row first starts the model
with empty caches, searches and all; then once more in a second process, where nothing may be
searched, compiled or timed; then all candidates are timed there in turns. With ``--jobs`` rows are
side by side on a GPU, one start each, with caches that all of them share: they compile together,
and what is timed, Inductor's tuning with it, is timed in turns. Without a GPU nothing is measured:
``--smoke`` runs tiny models on the CPU, regions as their programs in plain PyTorch.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks.farm import gpus
from benchmarks.farm.farm import Farm, Job, Outcome
from benchmarks.report.provenance import commit as commit_here
from benchmarks.whole_models.document import Document
from benchmarks.whole_models.phase import PEERS, first_start, measured_start
from benchmarks.whole_models.row import CACHES, WHOLE, log_of, row_of
from benchmarks.whole_models.table import row_line
from benchmarks.whole_models.zoo import WHOLE_MODELS

Json = dict[str, Any]

_ROW_S = 540.0
# Of a row, for the clock.
_TIMING_S = 20.0
_SHARED = ("MIRAGE_PY_WORKERS", "TORCHINDUCTOR_COMPILE_THREADS")


def tasks(only: tuple[str, ...], layers: int | None, options: Json) -> dict[str, Json]:
    """What each row is asked for, by its key; ``only`` are models or keys, all where it is empty.

    Raises click's UsageError for a name that there is not.
    """
    found = {}
    known = []
    for model in WHOLE_MODELS.values():
        for batch in model.batches:
            key = f"{model.name}-b{batch}"
            known += [model.name, key]
            if not only or model.name in only or key in only:
                found[key] = {
                    "model": model.name,
                    "batch": batch,
                    "layers": layers or model.layers,
                    "context": model.context,
                    **options,
                }
    if unknown := [name for name in only if name not in known]:
        names = ", ".join(dict.fromkeys(known))
        raise click.UsageError(f"there is no {', '.join(unknown)}; there are {names}")
    return found


def run_on_gpus(
    asked: dict[str, Json],
    document: Document,
    seconds: float | None,
    jobs: int,
    caches: Path | None,
) -> None:
    """Every row, batch 1 of all models first, each GPU so many at a time; what is not done in
    ``seconds`` is named. With ``caches``, a folder, rows share what is there, one start each.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    visible = gpus.visible()
    cores = len(os.sched_getaffinity(0)) // len(visible)
    # Who waits for a turn leaves its cores to the others.
    workers = max(1, cores if jobs == 1 else 2 * cores // jobs)

    def ready(gpu: str, found: Json) -> None:
        click.echo(f"GPU {gpu}: {found['machine']['gpu']}")
        document.machine = {**found["machine"], **gpus.driver_facts(), "gpus": len(visible)}

    def outcome(outcome: Outcome) -> None:
        key = outcome.job.key
        if outcome.value is None:
            document.fail(key, outcome.reason)
            click.echo(f"{key} failed: {outcome.reason}")
            return
        row = {**outcome.value["row"], "gpu": outcome.gpu}
        document.add(key, row)
        click.echo(row_line(row))

    environment = dict.fromkeys(_SHARED, str(workers))
    prepare, service = "benchmarks.suite.row_worker:prepare", "measure"
    with contextlib.ExitStack() as held:
        if jobs > 1 or caches is not None:
            folder = caches or Path(held.enter_context(tempfile.TemporaryDirectory()))
            environment |= {name: str(folder / name.lower()) for name in CACHES}
            prepare, service = "benchmarks.whole_models.row:prepare", "measure_here"
        places = [gpu for gpu in visible for _ in range(jobs)]
        farm = held.enter_context(Farm(places, prepare, _ROW_S, environment, ready, outcome))
        rows = [
            Job(key, {"service": f"benchmarks.whole_models.row:{service}", **task})
            for key, task in sorted(asked.items(), key=lambda item: item[1]["batch"])
        ]
        left = farm.run(rows, deadline=deadline)
    document.not_run = {
        job.key: "; ".join(["out of time", *last_words(asked[job.key]), *farm.faults])
        for job in left
    }
    document.write()


def last_words(task: Json) -> list[str]:
    """What the log of a row ends with, and the race of its whole graph, if it came to that."""
    log = log_of(task)
    if log is None or not log.exists():
        return []
    lines = [line.strip() for line in log.read_text(encoding="utf-8").splitlines()]
    raced = [line for line in lines[:-1] if WHOLE in line]
    return [*raced[-1:], *lines[-1:]]


def run_smoke(asked: dict[str, Json], document: Document) -> None:
    """Every row in this process, on the CPU: figures are null."""
    document.machine = {"gpu": None, "torch": torch.__version__}
    for key, task in asked.items():
        answers = {}
        with torch.no_grad():
            for name, phase in (("first_start", first_start), ("second_start", measured_start)):
                torch.compiler.reset()
                answers[name] = phase(task)
        row = row_of(task, answers, "")
        document.add(key, row)
        click.echo(row_line(row))


@click.command()
@click.option("--only", default="", help="Models or rows, with commas: llama8b,vit-b8.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write a JSON file.")
@click.option("--layers", type=click.IntRange(min=1), help="Layers of every model.")
@click.option("--budget", type=float, default=25.0, help="Seconds for each distinct region.")
@click.option("--max-regions", type=int, help="Distinct regions that are optimised.")
@click.option("--effort", type=click.Choice(["none", "quick", "full"]), default="full")
@click.option("--trust", is_flag=True, help="Regions are used without a race of whole graphs.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, help="Rows at a time on each GPU.")
@click.option("--caches", type=click.Path(path_type=Path), help="Shared by rows, and kept.")
@click.option("--peers", default=",".join(PEERS), help="Rivals besides eager, with commas.")
@click.option("--seconds", type=float, help="Seconds for the whole run.")
@click.option("--commit", default="", help="What is measured, where there is no checkout.")
@click.option("--resume", is_flag=True, help="Keep the rows of the file that is there.")
@click.option("--logs", type=click.Path(path_type=Path), help="Folder for what processes print.")
@click.option("--smoke", is_flag=True, help="Tiny models on the CPU: nothing is measured.")
def main(
    only: str,
    output: Path | None,
    layers: int | None,
    budget: float,
    max_regions: int | None,
    effort: str,
    trust: bool,
    jobs: int,
    caches: Path | None,
    peers: str,
    seconds: float | None,
    commit: str,
    logs: Path | None,
    resume: bool,
    smoke: bool,
) -> None:
    """Measure whole models with torch.compile, ours beside eager and Inductor."""
    rivals = [name for name in peers.split(",") if name and not smoke]
    if unknown := [name for name in rivals if name not in PEERS]:
        raise click.UsageError(f"there is no peer {', '.join(unknown)}; there are {list(PEERS)}")
    options = {
        "budget": budget,
        "max_regions": max_regions,
        "effort": effort,
        "whole_graph": "trust" if trust else "auto",
        "peers": rivals,
        "tiny": smoke,
        "device": "cpu" if smoke else "cuda",
        "timing_s": _TIMING_S,
        "logs": None if logs is None else str(logs.resolve()),
    }
    if logs is not None:
        logs.mkdir(parents=True, exist_ok=True)
    asked = tasks(tuple(filter(None, only.split(","))), 1 if smoke else layers, options)
    if not smoke and not gpus.visible():
        click.echo("no NVIDIA GPU here: nothing was measured (--smoke runs all but the clock)")
        return
    command = f"python -m benchmarks.whole_models {' '.join(sys.argv[1:])}"
    document = Document(
        output,
        {"command": command, "commit": commit_here(commit), "options": options},
    )
    if resume and output is not None and output.exists():
        document.take(json.loads(output.read_text(encoding="utf-8")))
        asked = {key: task for key, task in asked.items() if key not in document.rows}
    if smoke:
        run_smoke(asked, document)
        click.echo("nothing was measured: times are null")
    else:
        run_on_gpus(asked, document, seconds, jobs, caches and caches.resolve())
    if document.failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
