"""The ablation as text: a line for each variant, on the screen and in docs/notes/cuda.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.ablation.ablation_variants import FULL
from benchmarks.report.summary import geomean

_HEAD = (
    "program", "variant", "us", "against full", "registers", "spills", "shared memory, KB",
    "barriers", "stages", "remark",
)  # fmt: skip
_IS_NUMBER = tuple(2 <= n < len(_HEAD) - 1 for n in range(len(_HEAD)))


def markdown(document: Mapping[str, Any]) -> str:
    """Every variant of every program, and the geometric mean of each variant over programs."""
    rule = tuple("---:" if number else "---" for number in _IS_NUMBER)
    lines = [_HEAD, rule, *_cells(document["rows"])]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"{table}\n\n{means(document['rows'])}"


def text(document: Mapping[str, Any]) -> str:
    """The same in columns."""
    lines = [_HEAD, *_cells(document["rows"])]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(cells, widths, _IS_NUMBER, strict=True)
        ).rstrip()
        for cells in lines
    ]
    return "\n".join([*rows, "", means(document["rows"])])


def means(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many times slower each variant is, over the programs where it was timed."""
    found: dict[str, list[float]] = {}
    for row in rows:
        for line in row["variants"]:
            if line["name"] != FULL and "slower" in line:
                found.setdefault(line["name"], []).append(line["slower"])
    if not found:
        return "Nothing was timed."
    parts = [f"{name} {geomean(times):.2f}x ({len(times)})" for name, times in found.items()]
    return f"Geometric means, over as many programs: {', '.join(parts)}."


def _cells(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        for line in row["variants"]:
            kernels = line["kernels"]
            yield (
                row["key"] if line["name"] == FULL else "",
                line["name"],
                f"{line['us']:.2f}" if "us" in line else "-",
                f"{line['slower']:.2f}x" if "slower" in line else "-",
                _each(kernels, "registers"),
                _each(kernels, "spills"),
                ", ".join(f"{k['smem_bytes'] / 1024:.1f}" for k in kernels) or "-",
                _each(kernels, "barriers"),
                _each(kernels, "stages"),
                line["fault"].replace("|", "/"),
            )


def _each(kernels: Sequence[Mapping[str, Any]], name: str) -> str:
    return ", ".join("-" if k[name] is None else str(k[name]) for k in kernels) or "-"
