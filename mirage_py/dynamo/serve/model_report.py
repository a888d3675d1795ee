"""The report on a whole model: one HTML file, written again with each graph that is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

import torch

from mirage_py.dynamo.serve.options import BackendOptions
from mirage_py.report.rows_report import model_html
from mirage_py.runtime.base.atomic import write_text
from mirage_py.runtime.env.environment import gpu
from mirage_py.targets import Target

# The lines of every graph so far, by file: a model may have several, of several compilers.
_LINES: dict[str, dict[str, None]] = {}
_lock = Lock()


def add_to_report(lines: Sequence[str], options: BackendOptions, target: Target) -> None:
    """Take in the log of a graph, and write the file."""
    path = Path(options.report)
    with _lock:
        known = _LINES.setdefault(str(path.absolute()), {})
        known.update(dict.fromkeys(lines))
        found = gpu()
        settings = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "GPU": found.name if found else "none",
            "target": target.name,
            "torch": torch.__version__,
            "effort": options.effort,
            "everything else by": options.rest,
            "seed": str(options.seed),
        }
        write_text(path, model_html(tuple(known), path.stem, settings))
