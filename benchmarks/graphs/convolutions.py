"""The convolutions of rewritten networks: cuDNN's time, and that of a kernel with what is around.

python -m benchmarks.graphs.convolutions --only resnext50 --batch 1      # one GPU, 20 s a network
python -m benchmarks.graphs.convolutions --dry                           # what they are, no GPU

The library's time is of cuDNN or cuBLAS, with a modelled elementwise kernel after it. Networks are
rewritten by modelled costs; each kernel is checked before it is timed (convolution_times.py).
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks.graphs.dry_row import emitted_model
from benchmarks.graphs.models import MODELS
from benchmarks.report.provenance import commit
from mirage_py.dynamo.networks.convolution_kernels import matches
from mirage_py.dynamo.networks.convolution_times import Timed, convolution_times
from mirage_py.runtime.base.atomic import write_text
from mirage_py.search.networks.convolutions.tiles import least_us
from mirage_py.targets import target
from mirage_py.ugraph.ir.convolution import FusedConvolution

Json = dict[str, Any]
_NETWORKS = ("resnext50", "nasnet_a", "inception_v3", "resnet50")
_TARGET = target("h200")


@click.command(help=__doc__)
@click.option("--only", multiple=True, type=click.Choice(list(MODELS)))
@click.option("--batch", "batches", multiple=True, type=int, default=(1,), show_default=True)
@click.option("--dry", is_flag=True, help="No GPU: the model's times.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False))
def main(only: tuple[str, ...], batches: tuple[int, ...], dry: bool, output: Path | None) -> None:
    rows: list[Json] = []
    for batch in batches:
        for name in only or _NETWORKS:
            counts = convolutions_of(name, batch)
            times: dict[FusedConvolution, Timed] = {}
            if not dry:
                times = convolution_times(list(counts), _TARGET, torch.device("cuda"))
            rows += [_row(name, batch, spec, n, times.get(spec)) for spec, n in counts.items()]
            click.echo("\n".join([f"{name} at batch {batch}", *map(_line, rows[-len(counts) :])]))
            _print_total(rows[-len(counts) :])
            if output is not None:
                document = {"commit": commit(), "rows": rows}
                write_text(output, json.dumps(document, indent=1) + "\n")


def convolutions_of(name: str, batch: int) -> Counter[FusedConvolution]:
    """The convolutions of a network, with what is around them, after the graph level."""
    module, constants = emitted_model(name, batch)
    return Counter(match.spec for match in matches(module, constants))


def _row(name: str, batch: int, spec: FusedConvolution, count: int, timed: Timed | None) -> Json:
    row = {
        "model": name,
        "batch": batch,
        "convolution": words(spec),
        "times": count,
        "modelled_us": round(least_us(spec, _TARGET), 1),
    }
    if timed is not None:
        row |= {"us": timed.us, "library_us": timed.library_us, "why": timed.why[:300]}
        row["tiles"] = "" if timed.tiles is None else str(timed.tiles)
    return row


def words(spec: FusedConvolution) -> str:
    """A convolution in a few words."""
    around = [
        word
        for word, is_there in (
            ("relu before", spec.relu_before),
            ("bias", spec.has_bias),
            ("residual", spec.has_residual),
            ("relu", spec.relu_after),
        )
        if is_there
    ]
    groups = f" {spec.groups} groups" * (spec.groups > 1)
    if spec.is_separable:
        groups = " and 1 x 1"
    if spec.pool:
        groups = f" {'largest' if spec.pool == 'max' else spec.pool}"
    window, space = (" x ".join(map(str, axes)) for axes in (spec.window, spec.space))
    size = f"{spec.inputs} to {spec.results} channels at {space}"
    return f"{window}{groups}, stride {spec.stride[0]}, {size}, {' + '.join(around)}"


def _line(row: Json) -> str:
    if "us" not in row:
        return f"  {row['times']} x {row['convolution']}: modelled {row['modelled_us']} us"
    kind = "wins" if row["us"] < row["library_us"] else "LOSES"
    times = f"{row['us']:.1f} us (modelled {row['modelled_us']}), library {row['library_us']:.1f}"
    return f"  {row['times']} x {row['convolution']}: {times}: {kind} {row['tiles']} {row['why']}"


def _print_total(rows: list[Json]) -> None:
    modelled = sum(r["times"] * r["modelled_us"] for r in rows)
    line = f"  all {sum(r['times'] for r in rows)}: modelled {modelled:.0f} us"
    if "us" in rows[0]:
        library = sum(r["times"] * r["library_us"] for r in rows)
        best = sum(r["times"] * min(r["us"], r["library_us"]) for r in rows)
        line += f", library {library:.0f} us, the faster of both {best:.0f} us"
    click.echo(line)


if __name__ == "__main__":
    main()
