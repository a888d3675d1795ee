"""A report of many mutants: counted, written and merged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from adversarial.corpus import Site, descriptions
from adversarial.trial import EQUAL, FLOATS, OUTCOMES, WRONG

UNEXPLAINED = "unexplained"
Counts = dict[str, dict[str, int]]


@dataclass
class Report:
    """Equal for equal arguments on every machine.

    ``counts`` has for each kind how many mutants had each outcome, ``graphs`` the same for each
    µGraph; ``accepted`` names those that a person may want to see, by outcome; ``why`` has how many
    of the equal ones have which explanation.
    """

    commit: str
    seed: int
    count: int
    done: int = 0
    totals: dict[str, int] = field(default_factory=dict)
    counts: Counts = field(default_factory=dict)
    graphs: Counts = field(default_factory=dict)
    why: dict[str, int] = field(default_factory=dict)
    accepted: dict[str, list[str]] = field(default_factory=dict)

    def add(self, site: Site, found: str, reason: str) -> None:
        """Count one mutant; ``reason`` is why it is equal."""
        self.done += 1
        _count(self.totals, found)
        _count(self.counts.setdefault(site.kind, {}), found)
        _count(self.graphs.setdefault(site.graph, {}), found)
        if found == EQUAL:
            _count(self.why, reason or UNEXPLAINED)
        if found in (FLOATS, WRONG):
            self.accepted.setdefault(found, []).append(str(site))
        elif found == EQUAL and not reason:
            self.accepted.setdefault(UNEXPLAINED, []).append(str(site))

    def take(self, other: Report) -> None:
        """Add another part of the same campaign. Raises ValueError for that of another one."""
        if (self.commit, self.seed, self.count) != (other.commit, other.seed, other.count):
            raise ValueError(f"{other.commit}, seed {other.seed}: that is another campaign")
        self.done += other.done
        _sum(self.totals, other.totals)
        _sum(self.why, other.why)
        for mine, its in ((self.counts, other.counts), (self.graphs, other.graphs)):
            for key, row in its.items():
                _sum(mine.setdefault(key, {}), row)
        for name, places in other.accepted.items():
            self.accepted.setdefault(name, []).extend(places)

    def document(self) -> dict[str, Any]:
        """As it is written: sorted, with what each kind does."""
        data = asdict(self)
        said = descriptions()
        data["totals"] = _row(self.totals)
        data["counts"] = {
            kind: {"what": said[kind], **_row(row)} for kind, row in sorted(self.counts.items())
        }
        data["graphs"] = {
            name: {o: row[o] for o in OUTCOMES if o in row}
            for name, row in sorted(self.graphs.items())
        }
        data["why"] = dict(sorted(self.why.items()))
        data["accepted"] = {name: sorted(self.accepted[name]) for name in sorted(self.accepted)}
        return data


def _count(row: dict[str, int], key: str) -> None:
    row[key] = row.get(key, 0) + 1


def _sum(mine: dict[str, int], other: dict[str, int]) -> None:
    for key, number in other.items():
        mine[key] = mine.get(key, 0) + number


def _row(counts: dict[str, int]) -> dict[str, int]:
    return {outcome: counts.get(outcome, 0) for outcome in OUTCOMES}


def write(report: Report, path: Path) -> None:
    """As JSON."""
    text = json.dumps(report.document(), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def read(path: Path) -> Report:
    """The report that a file holds."""
    data = json.loads(path.read_text(encoding="utf-8"))
    for row in data["counts"].values():
        del row["what"]
    return Report(**data)


def merged(paths: Sequence[Path]) -> Report:
    """The sum of several parts of one campaign."""
    first, *others = map(read, paths)
    for other in others:
        first.take(other)
    return first


def table(report: Report) -> str:
    """The counts of all kinds as a Markdown table."""
    lines = [f"| kind | tried | {' | '.join(OUTCOMES)} |", "|---|" + "---:|" * (len(OUTCOMES) + 1)]
    for kind, row in (*sorted(report.counts.items()), ("all", report.totals)):
        cells = [str(row.get(o, 0) or "") for o in OUTCOMES]
        lines.append(f"| {kind.replace('_', ' ')} | {sum(row.values())} | {' | '.join(cells)} |")
    return "\n".join(lines)
