"""Records of the decorator's final benchmark, program by program: peers, seconds of each stage,
notes.

    python -m benchmarks.wild.race OUT.json NAME [NAME@T=1024 ...]

For a GPU; about half a minute a program. Rows of the suite have it too.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks.wild.agreement import copied
from benchmarks.wild.catalogue import program_at
from mirage_py.frontend.decorator import superoptimize
from mirage_py.runtime.base.atomic import write_text

_KEYS = ("peers", "seconds_of", "late")


def race_of(fast: Any, entry: Any) -> dict[str, Any]:
    """What a decorated function's race saw of the peers, and its notes."""
    report = fast._preparation.report(entry)  # noqa: SLF001  as JSON it has no other way out
    record = report.get("record", {})
    return {**{key: record[key] for key in _KEYS if key in record}, "notes": report.get("notes")}


def raced(name: str, budget_s: float = 25.0) -> dict[str, Any]:
    """Seconds of the first call, what serves, and the race."""
    program = program_at(name)
    given = program.arguments(real=True, device="cuda")
    fast = superoptimize(effort="quick", budget=budget_s)(program.function)
    begin = time.perf_counter()
    fast(*copied(given))
    torch.cuda.synchronize()
    first_s = time.perf_counter() - begin
    entry = fast.entry(*copied(given))
    race = race_of(fast, entry)
    return {"first_call_s": round(first_s, 1), "served": str(entry.served), "race": race}


def main() -> None:
    """Print a few lines for each, and write the file as they come."""
    found: dict[str, Any] = {}
    for name in sys.argv[2:]:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            row = found[name] = raced(name)
        click.echo(f"== {name}: first call {row['first_call_s']} s; {row['served'][:200]}")
        for key, value in row["race"].items():
            click.echo(f"   {key} {json.dumps(value)}")
        write_text(Path(sys.argv[1]), json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
