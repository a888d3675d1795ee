"""The tables of docs/notes/cuda.md: CUDA beside Triton, the ablation, other GPUs.

The first is of ``h200-suite.json``, where it was written with ``--backend auto``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.ablation import ablation_table
from benchmarks.report import ahead
from benchmarks.report.summary import best_peer, geomean, key_of, peers_of

Row = Mapping[str, Any]

_HEAD = ("workload", "CUDA", "Triton", "CUDA against Triton", "best peer", "us", "against it")


def cuda_table(document: Mapping[str, Any]) -> str:
    """Both back ends beside the fastest peer, in microseconds; what CUDA loses is in bold."""
    lines = [_HEAD, ("---", *["---:"] * 3, "---", *["---:"] * 2)]
    lines += [_cells(row) for row in document["rows"]]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    both = [found for row in document["rows"] if (found := _against(row, row["triton_us"]))]
    if not both:
        return table
    won = sum(x >= 1.0 for x in both)
    return (
        f"{table}\n\nGeometric mean of CUDA against Triton: {geomean(both):.2f}x; CUDA is as fast "
        f"or faster in {won} of {len(both)}."
    )


def tables(results: Path) -> Iterator[tuple[str, str]]:
    """The mark and the text of each table whose result file is there."""
    found: dict[str, tuple[str, Callable[[Mapping[str, Any]], str]]] = {
        "cuda": ("h200-suite.json", cuda_table),
        "ablation": ("h200-cuda-ablation.json", ablation_table.markdown),
        "ahead": ("ahead-cuda.json", lambda document: ahead.table(document["lines"])),
    }
    for mark, (name, table) in found.items():
        path = results / name
        if path.exists():
            yield mark, table(json.loads(path.read_text(encoding="utf-8")))


def _cells(row: Row) -> tuple[str, ...]:
    best = best_peer(row)
    peer_us = peers_of(row).get(best or "")
    return (
        key_of(row),
        _us(row["cuda_us"]),
        _us(row["triton_us"]),
        _times(_against(row, row["triton_us"])),
        best or "none",
        _us(peer_us),
        _times(_against(row, peer_us)),
    )


def _against(row: Row, us: float | None) -> float | None:
    """How many times faster than ``us`` CUDA is."""
    return us / row["cuda_us"] if us and row["cuda_us"] else None


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _times(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}x" if value >= 1.0 else f"**{value:.2f}x**"
