"""The graph level on whole networks.

python -m benchmarks.graphs --dry -o benchmarks/results/graphs-dry.json   # without a GPU
python -m benchmarks.graphs -o benchmarks/results/h200-graphs.json        # on one GPU

A dry run imports, saturates, extracts, verifies and emits every model without data in its tensors,
and prints the gain by the model of costs with the substitutions that made it. On a GPU ours is
timed beside eager PyTorch and torch.compile with max-autotune, with and without freezing.
Candidates that the file has times of are kept, so the next run completes one that was cut short.
--rehearse runs the processes with a tiny network and the clock of the CPU: no figures.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.graphs.measured_row import CANDIDATES
from benchmarks.graphs.merged_row import merged_row
from benchmarks.graphs.models import BATCHES, MODELS, REHEARSAL
from benchmarks.graphs.processes import is_whole, rows_in_processes
from benchmarks.graphs.table import dry_table, measured_table
from benchmarks.report.provenance import commit
from mirage_py.runtime.base.atomic import write_text

Json = dict[str, Any]


@click.command(help=__doc__)
@click.option("--dry", is_flag=True, help="Without a GPU: what is found and verified.")
@click.option("--only", multiple=True, type=click.Choice(list(MODELS)), help="Models; all of them.")
@click.option("--batch", "batches", multiple=True, type=int, help="Batch sizes; 1 and 16.")
@click.option("--candidate", "candidates", multiple=True, type=click.Choice(CANDIDATES))
@click.option("--effort", type=click.Choice(["auto", "full"]), default="auto", show_default=True)
@click.option(
    "--budget", default=60.0, show_default=True, help="Seconds of checks, or of a search."
)
@click.option("--workers", default=4, show_default=True, help="Models compiled side by side.")
@click.option("--seconds", default=3600.0, show_default=True, help="For all measured rows.")
@click.option("--again", is_flag=True, help="Measure what the file has, too.")
@click.option("--rehearse", is_flag=True, help="Without a GPU: the processes, with a tiny network.")
@click.option("--target", default="h200", show_default=True, help="Whose costs a dry run takes.")
@click.option("--mode", default="max-autotune", show_default=True, help="Of torch.compile.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False))
def main(
    dry: bool,
    only: tuple[str, ...],
    batches: tuple[int, ...],
    candidates: tuple[str, ...],
    effort: str,
    budget: float,
    workers: int,
    seconds: float,
    again: bool,
    rehearse: bool,
    target: str,
    mode: str,
    output: Path | None,
) -> None:
    keys = [(name, batch) for batch in batches or BATCHES for name in only or MODELS]
    if rehearse:
        keys = [(REHEARSAL, batch) for batch in batches or BATCHES]
    known: dict[tuple[str, int], Json] = {}
    if output is not None and output.exists() and not dry:
        rows = json.loads(output.read_text(encoding="utf-8"))["rows"]
        known = {(row["model"], row["batch"]): row for row in rows}

    def done(row: Json) -> None:
        known[row["model"], row["batch"]] = {**row, "commit": commit()}
        if output is not None:
            document = {"commit": commit(), "dry": dry, "rows": [*known.values()]}
            write_text(output, json.dumps(document, indent=1) + "\n")

    def measured(key: tuple[str, int], parts: Mapping[str, Json]) -> None:
        # What an earlier run has measured is of its commit.
        dated = {name: {"commit": commit(), **part} for name, part in parts.items()}
        row = merged_row(*key, dated)
        click.echo(measured_table([row]), err=True)
        done(row)

    if dry:
        for key in keys:
            row = _dry(*key, effort, budget, target)
            click.echo(json.dumps(row), err=True)
            done(row)
    else:
        parts = {} if again else {key: known[key]["candidates"] for key in keys if key in known}
        wanted = candidates or CANDIDATES
        keys = [key for key in keys if _is_wanted(parts.get(key, {}), wanted)]
        device = "cpu" if rehearse else "cuda"
        options: Json = {"mode": mode, "budget_s": budget, "device": device}
        rows_in_processes(keys, workers, seconds, measured, parts, wanted, **options)
    rows = [*known.values()]
    click.echo(dry_table(rows) if dry else measured_table(rows))


def _is_wanted(parts: Mapping[str, Json], wanted: Sequence[str]) -> bool:
    """Whether a candidate of a row is missing."""
    return not all(name in parts and is_whole(parts[name]) for name in wanted)


def _dry(name: str, batch: int, effort: str, budget_s: float, target: str) -> Json:
    from benchmarks.graphs.dry_row import dry_row

    try:
        return dry_row(name, batch, effort=effort, budget_s=budget_s, target_name=target)
    # One model of many: the others go on, and the table says what happened.
    except Exception as error:  # noqa: BLE001
        failure = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        return {"model": name, "batch": batch, "failure": failure}
