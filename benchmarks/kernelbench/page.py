"""The tables of the page docs/reference/kernelbench.md, from the result file of a dry run.

python -m benchmarks.kernelbench.page    # or another result file
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from benchmarks.report import marks

Json = Mapping[str, Any]

_ROOT = Path(__file__).resolve().parents[2]
RESULT = _ROOT / "benchmarks/results/kernelbench-dry.json"
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


def fill_page(document: Json, page: Path = PAGE) -> None:
    """Put the tables into the page."""
    text = page.read_text(encoding="utf-8")
    text = marks.filled(text, "kernelbench-counts", counts_table(document))
    text = marks.filled(text, "kernelbench-left", left_table(document))
    page.write_text(text, encoding="utf-8")


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


@click.command()
@click.argument("result", type=click.Path(exists=True, path_type=Path), default=RESULT)
def main(result: Path) -> None:
    """Write the tables, from a result file."""
    fill_page(json.loads(result.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
