"""The timeline of an optimisation, and where and with what it was made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mirage_py.report.pictures.plots import Span

Json = Mapping[str, Any]
# A longer timeline is drawn by its longest stages.
_MOST = 40


def spans(record: Json) -> tuple[Span, ...]:
    """Each stage that progress told of, until the next one begins."""
    stages = record.get("timeline", ())
    ends = [*(at for at, _ in stages[1:]), record.get("seconds", 0.0)]
    found = [
        Span(str(text), at, max(at, end)) for (at, text), end in zip(stages, ends, strict=False)
    ]
    if len(found) > _MOST:
        shortest = sorted(s.end - s.begin for s in found)[-_MOST]
        found = [s for s in found if s.end - s.begin >= shortest][:_MOST]
    return tuple(found)


def circumstances(report: Json, version: str) -> tuple[tuple[str, str], ...]:
    """Machine, versions, date, seed and settings as rows; what is missing says so."""
    record: Json = report.get("record", {})
    machine, versions = record.get("machine", {}), record.get("versions", {})
    request = record.get("request", {})
    unknown = "not recorded"
    gpu = machine.get("gpu", unknown)
    rows = [
        ("date", record.get("date", unknown)),
        ("target", report.get("target", unknown)),
        ("GPU of the machine", "none: nothing was measured" if gpu == "none" else gpu),
        ("system", machine.get("system", unknown)),
        ("versions", ", ".join(f"{k} {v}" for k, v in versions.items()) or unknown),
        ("report written by", f"mirage_py {version}"),
        ("seed", request.get("seed", unknown)),
        ("effort", request.get("effort", unknown)),
        ("back end", request.get("backend", unknown)),
        ("budget", f"{request['budget']} s" if "budget" in request else "the effort's own"),
        ("program digest", report.get("program", {}).get("digest", unknown)),
        (
            "from the cache",
            "yes: times are those of the first search" if report.get("cached") else "no",
        ),
    ]
    return tuple((name, str(value)) for name, value in rows)
