"""Tables of result files in the pages h200.md, cuda.md and whole_models.md of docs/notes, and in
the README.

python -m benchmarks.pages.page   # or the folder of other results

The text between ``<!-- suite -->`` and ``<!-- /suite -->`` of h200.md (from h200-suite.json),
``<!-- ahead -->`` there (from ahead.json) and ``<!-- results -->`` of the README is replaced, and
so are the tables of cuda.md (``benchmarks/pages/cuda_page.py``) and ``<!-- whole-models -->`` of
whole_models.md where there is a h200-whole-models.json. The picture of the README is drawn anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.pages import cuda_page
from benchmarks.report import ahead, marks
from benchmarks.report.record import read_document
from benchmarks.report.speedup_chart import speedup_chart
from benchmarks.report.summary import BEST, best_peer, floor_share, geomean, key_of, peers_of, ratio
from benchmarks.whole_models.table import whole_models_table
from benchmarks.workloads.workloads import suites
from mirage_py.ugraph.ir.launch_config import LaunchConfig

Row = Mapping[str, Any]

ROOT = Path(__file__).resolve().parents[2]
WHOLE_MODELS_FILE = "h200-whole-models.json"
# The picture of the README.
CHART = ROOT / "docs/h200_speedups.svg"
# Program by program, each with its batches.
_CELLS = suites()["paper"]
PAPER = tuple(
    w.key for name in dict.fromkeys(c.name for c in _CELLS) for w in _CELLS if w.name == name
)
# What the paper's programs are compared with: what torch does by itself, and its attention.
_USUAL = ("eager", "compile", "compile_max_autotune", "sdpa_flash", "sdpa_cudnn")
_HEAD = (
    "workload",
    "ours",
    "best peer",
    "us",
    "against it",
    "eager",
    "max-autotune",
    "of the floor",
)


def suite_table(document: Mapping[str, Any]) -> str:
    """Every row, the paper's programs first: times in microseconds, losses in bold."""
    rows = {key_of(row): row for row in document["rows"]}
    others = [row for key, row in rows.items() if key not in PAPER]
    others.sort(key=lambda row: (row["workload"], row["batch"]))
    order = [*(k for k in PAPER if k in rows), *map(key_of, others)]
    lines = [_line((*_HEAD, "kind", "plan")), _line(("---", *["---:"] * 7, "---", "---"))]
    lines += [_line(_cells(rows[key])) for key in order]
    return "\n".join(lines)


def summary(document: Mapping[str, Any]) -> str:
    """Geometric means over the paper's programs, in a sentence."""
    rows = [row for row in document["rows"] if key_of(row) in PAPER]
    means = [
        f"{name} {geomean(found):.2f}x"
        for name, found in (
            ("the best of eager, torch.compile in both modes and SDPA", _over(rows, _USUAL)),
            ("the best of all peers", _over(rows, None)),
            ("max-autotune", _over(rows, ("compile_max_autotune",))),
            ("eager", _over(rows, ("eager",))),
        )
        if found
    ]
    return f"Geometric means over the {len(rows)} rows of the paper's programs: {', '.join(means)}."


def _over(rows: Iterable[Row], names: Sequence[str] | None) -> list[float]:
    """How many times faster ours is than the fastest of these peers, cell by cell."""
    found = []
    for row in rows:
        times = [us for n, us in peers_of(row).items() if names is None or n in names]
        if times and row["ours_us"]:
            found.append(min(times) / row["ours_us"])
    return found


def _cells(row: Row) -> tuple[str, ...]:
    best = best_peer(row)
    against = ratio(row, BEST)
    won = against is not None and against >= 1.0
    share = floor_share(row)
    return (
        key_of(row),
        _us(row["ours_us"]),
        best or "none",
        _us(peers_of(row).get(best or "")),
        _times(against) if won else f"**{_times(against)}**",
        _times(ratio(row, "eager")),
        _times(ratio(row, "compile_max_autotune")),
        "-" if share is None else f"{100 * share:.0f} %",
        _kind(row),
        "; ".join(_plan(kernel) for kernel in row.get("plan") or ()),
    )


def _kind(row: Row) -> str:
    """What kind of µGraph it is, and whose text where it is not Triton's."""
    kind = row.get("kind") or ""
    return f"CUDA: {kind}" if row.get("backend") == "cuda" else kind


def _plan(kernel: Mapping[str, Any]) -> str:
    """Tiles of the grid, of the loops, warps and stages of one kernel."""
    if "library" in kernel:
        return f"library {kernel['library']}"
    tiles = [f"{d} {tile}" for d, tile in kernel["grid"].items() if tile and tile > 1]
    words = [", ".join(tiles)] if tiles else []
    words += [f"loop {loop} {tile}" for loop, tile in kernel["loops"]]
    words.append(f"{kernel['num_warps']} warps")
    words += [f"{kernel['num_stages'][0]} stages"] if kernel["num_stages"] else []
    config = LaunchConfig.from_flags(kernel["num_warps"], (), kernel["flags"].items())
    words += ["swapped"] if config.reversed_axes else []
    words += ["TMA"] if config.uses_tma else []
    words += ["producer warps"] if config.producer_warps else []
    words += ["MMA overlap"] if config.overlap else []
    words += ["PDL"] if config.early_start else []
    return ", ".join(words)


def _whole_models(results: Path) -> Iterator[tuple[Path, str, str]]:
    path = results / WHOLE_MODELS_FILE
    if path.exists():
        document = json.loads(path.read_text(encoding="utf-8"))
        yield ROOT / "docs/notes/whole_models.md", "whole-models", whole_models_table(document)


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


@click.command()
@click.argument(
    "results",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=ROOT / "benchmarks/results",
)
def main(results: Path) -> None:
    """Write all tables, from the files of a folder."""
    document = read_document(results / "h200-suite.json")
    winners = json.loads((results / "ahead.json").read_text(encoding="utf-8"))
    CHART.write_text(speedup_chart(document), encoding="utf-8")
    for path, mark, text in (
        (ROOT / "docs/notes/h200.md", "suite", suite_table(document)),
        (ROOT / "docs/notes/h200.md", "ahead", ahead.table(winners["lines"])),
        (ROOT / "README.md", "results", summary(document)),
        *((ROOT / "docs/notes/cuda.md", mark, text) for mark, text in cuda_page.tables(results)),
        *_whole_models(results),
    ):
        path.write_text(
            marks.filled(path.read_text(encoding="utf-8"), mark, text), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
