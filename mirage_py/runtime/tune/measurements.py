"""Times of plans that were tuned here, kept for ``mirage-py calibrate``.

CACHE/measurements/TARGET.jsonl    a line a plan: key (the program's digest), plan, us
CACHE/rankers/TARGET.json          the weights of the ranker that was learned from them
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable
from pathlib import Path

from mirage_py.runtime.base.private_folder import private_folder
from mirage_py.runtime.tune.measured import Measured
from mirage_py.settings import Settings
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.text.json_form import to_json

# Some hundred tunings: more teach little.
_MOST_BYTES = 256 << 20


def measurements_of(target: str) -> Path:
    """Where the times of a target's plans lie, if there are any."""
    return private_folder("measurements") / f"{target}.jsonl"


def ranker_of(target: str) -> Path:
    """Where the weights learned here lie, if there are any."""
    return private_folder("rankers") / f"{target}.json"


def note(program: Program, target: str, measured: Iterable[Measured]) -> None:
    """Keep the times of plans of a program that were right."""
    if Settings.from_env().no_cache:
        return
    lines = [
        json.dumps(
            {"key": program.digest, "plan": to_json(m.plan), "us": round(m.time_us, 3)},
            separators=(",", ":"), sort_keys=True,
        )
        for m in measured
        if m.plan is not None and m.passed and math.isfinite(m.time_us)
    ]  # fmt: skip
    path = measurements_of(target)
    # Without a place to keep them a later tuning teaches instead.
    with contextlib.suppress(OSError):
        if not path.exists() or path.stat().st_size < _MOST_BYTES:
            with path.open("a", encoding="utf-8") as file:
                file.write("".join(f"{line}\n" for line in lines))
