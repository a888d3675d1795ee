"""The tables of the page docs/reference/kernelbench.md, from result files.

python -m benchmarks.kernelbench.page    # or other ones: of a dry run, or of a type on a GPU
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from benchmarks.kernelbench.document import is_slower, over_compile
from benchmarks.report import marks

Json = Mapping[str, Any]

_ROOT = Path(__file__).resolve().parents[2]
_RESULTS = _ROOT / "benchmarks/results"
FILES = [
    _RESULTS / f"{name}.json"
    for name in ("kernelbench-dry", "h200-kernelbench-bf16", "h200-kernelbench-fp32")
]
_FASTER = 1.02
PAGE = _ROOT / "docs/reference/kernelbench.md"


def counts_table(document: Json) -> str:
    """A line for each level."""
    head = ("level", "problems", "taken", "in parts", "left", "identically zero")
    lines = [_line(head), _line(("---", *["---:"] * 4, "---"))]
    for level, part in document["summary"].items():
        left = part["problems"] - part["taken"] - part["in_parts"]
        counts = (part["problems"], part["taken"], part["in_parts"], left)
        zero = ", ".join(part["identically_zero"]) or "none"
        lines.append(_line((level.removeprefix("L"), *map(str, counts), zero)))
    limit = f"Up to {document['limit_s']:g} s of CPU time for each problem."
    return "\n".join([*lines, "", limit])


def left_table(document: Json) -> str:
    """Every problem that is not taken as one program: the reason, and its operators in regions."""
    lines = [_line(("problem", "why it is no program", "operators in regions"))]
    lines.append(_line(("---", "---", "---")))
    for key, row in document["rows"].items():
        if row["status"] != "taken":
            inside = f"{row['in_regions']} of {row['operators']}" if "operators" in row else "-"
            name = row["problem"].partition("_")[2]
            why = row["reason"].partition(" in `")[0].replace("|", "/")
            lines.append(_line((f"{key} {name}", why, inside)))
    return "\n".join(lines)


def speed_table(document: Json) -> str:
    """A line for each level of what was measured on a GPU, then one for each problem."""
    head = ("level", "problems", "timed", "2 % faster", "2 % slower", "mean ratio", "over eager")
    lines = [_line(head), _line(("---", *["---:"] * 6))]
    for level, part in document["summary"].items():
        rows = [r for k, r in document["rows"].items() if k.startswith(f"{level}-") and "us" in r]
        faster = sum(over_compile(r) > _FASTER for r in rows)
        slower = sum(is_slower(r) for r in rows)
        counts = (part["problems"], len(rows), faster, slower)
        means = [part.get(f"geomean_over_{name}") for name in ("compile", "eager")]
        shown = ["-" if mean is None else f"{mean:.2f}x" for mean in means]
        lines.append(_line((level.removeprefix("L"), *map(str, counts), *shown)))
    head = ("problem", "eager us", "torch.compile us", "ours us", "ratio", "served", "tree")
    lines += ["", _line(head), _line(("---", *["---:"] * 4, "---", "---"))]
    for key, row in document["rows"].items():
        name = f"{key} {row['problem'].partition('_')[2]}"
        if "us" in row:
            us = row["us"]
            times = [f"{us[n]:.0f}" if n in us else "-" for n in ("eager", "compile", "ours")]
            served = row["served"].rpartition("-> ")[2].partition(":")[0]
            cells = (name, *times, f"{over_compile(row):.3f}x", served, row["commit"])
        else:
            cells = (name, *["-"] * 4, _why_not(row), row["commit"])
        lines.append(_line(cells))
    return "\n".join(lines)


def _why_not(row: Json) -> str:
    """Why a row has no times, short."""
    if "out of memory" in row["reason"] or "OutOfMemory" in row["reason"]:
        return "out of memory, beside other rows"
    return str(row["reason"]).splitlines()[0][:60].replace("|", "/")


def fill_page(document: Json, page: Path = PAGE) -> None:
    """Put the tables of a file into the page."""
    made = {"kernelbench-counts": counts_table, "kernelbench-left": left_table}
    if not document["dry"]:
        made = {f"kernelbench-{document['options']['dtype']}": speed_table}
    text = page.read_text(encoding="utf-8")
    for mark, table in made.items():
        text = marks.filled(text, mark, table(document))
    page.write_text(text, encoding="utf-8")


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


@click.command()
@click.argument("results", type=click.Path(exists=True, path_type=Path), nargs=-1)
def main(results: tuple[Path, ...]) -> None:
    """Write the tables, from result files."""
    for result in results or FILES:
        fill_page(json.loads(result.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
