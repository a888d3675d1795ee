"""The graph level on whole networks.

python -m benchmarks.graphs --dry -o benchmarks/results/graphs-dry.json   # without a GPU
python -m benchmarks.graphs -o benchmarks/results/h200-graphs.json        # on one GPU

A dry run imports, saturates, extracts, verifies and emits every model without data in its tensors,
and prints the gain by the model of costs with the substitutions that made it. On a GPU ours is
timed beside eager PyTorch and torch.compile with max-autotune, with and without freezing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from benchmarks.graphs.models import BATCHES, MODELS
from benchmarks.graphs.table import dry_table, measured_table
from benchmarks.report.provenance import commit
from mirage_py.runtime.base.atomic import write_text

Json = dict[str, Any]


@click.command(help=__doc__)
@click.option("--dry", is_flag=True, help="Without a GPU: what is found and verified.")
@click.option("--only", multiple=True, type=click.Choice(list(MODELS)), help="Models; all of them.")
@click.option("--batch", "batches", multiple=True, type=int, help="Batch sizes; 1 and 16.")
@click.option("--effort", type=click.Choice(["auto", "full"]), default="auto", show_default=True)
@click.option(
    "--budget", default=60.0, show_default=True, help="Seconds of checks, or of a search."
)
@click.option("--target", default="h200", show_default=True, help="Whose costs a dry run takes.")
@click.option("--mode", default="max-autotune", show_default=True, help="Of torch.compile.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False))
def main(
    dry: bool,
    only: tuple[str, ...],
    batches: tuple[int, ...],
    effort: str,
    budget: float,
    target: str,
    mode: str,
    output: Path | None,
) -> None:
    rows: list[Json] = []
    for name in only or tuple(MODELS):
        for batch in batches or BATCHES:
            try:
                rows.append(
                    _dry(name, batch, effort, budget, target)
                    if dry
                    else _measured(name, batch, mode, budget)
                )
            # One model of many: the others go on, and the table says what happened.
            except Exception as error:  # noqa: BLE001
                failure = f"{type(error).__name__}: {str(error).splitlines()[0]}"
                rows.append({"model": name, "batch": batch, "failure": failure})
            click.echo(json.dumps(rows[-1]), err=True)
            if output is not None:
                document = {"commit": commit(), "dry": dry, "rows": rows}
                write_text(output, json.dumps(document, indent=1) + "\n")
    click.echo(dry_table(rows) if dry else measured_table(rows))


def _dry(name: str, batch: int, effort: str, budget_s: float, target: str) -> Json:
    from benchmarks.graphs.dry_row import dry_row

    return dry_row(name, batch, effort=effort, budget_s=budget_s, target_name=target)


def _measured(name: str, batch: int, mode: str, budget_s: float) -> Json:
    from benchmarks.graphs.measured_row import measured_row

    return measured_row(name, batch, mode=mode, budget_s=budget_s)
