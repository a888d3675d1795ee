"""The figures of docs/notes/mutants.md, from the reports of the two campaigns:
``PYTHONPATH=tests python -m adversarial.mutants_page``. They stand between marks; people write the
rest.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adversarial.report import UNEXPLAINED, Report, read, table
from adversarial.trial import EQUAL, FLOATS, WRONG

from benchmarks.report.marks import filled

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "notes" / "mutants.md"
MUTANTS = ROOT / "benchmarks" / "results" / "mutants.json"
RANDOM = ROOT / "benchmarks" / "results" / "random-programs.json"
_NOT_LOOKED_FOR = "no explanation was found: float64 sees no difference on any set of inputs"


def page(text: str, mutants: Report, random: Mapping[str, Any]) -> str:
    """The page with the figures of two reports."""
    return filled(filled(text, "mutants", of_mutants(mutants)), "random", of_programs(random))


def of_mutants(report: Report) -> str:
    """How many there were, what became of them, why some are right, all kinds."""
    programs = dict.fromkeys(map(_program, report.graphs))
    accepted = sum(report.totals.get(outcome, 0) for outcome in (EQUAL, FLOATS, WRONG))
    wrong = report.accepted.get(WRONG, [])
    first = (
        f"{report.done:,} mutants of {len(report.graphs)} µGraphs of {len(programs)}"
        f" programs, {len(report.counts)} kinds of mistakes (seed {report.seed}, commit"
        f" {report.commit}): {report.done - accepted:,} were refused, **{len(wrong)} wrong ones"
        " were accepted**."
    )
    lines = [
        first,
        "",
        *(f"* accepted and wrong: {site}" for site in wrong),
        *([""] if wrong else []),
        "| equal | why |",
        "|---:|---|",
    ]
    for reason, number in sorted(report.why.items(), key=lambda row: (-row[1], row[0])):
        said = _NOT_LOOKED_FOR if reason == UNEXPLAINED else reason
        lines.append(f"| {number:,} | {said} |")
    return "\n".join((*lines, "", table(report)))


def _program(graph: str) -> str:
    """At any sizes."""
    return graph.partition(".")[0].removeprefix("hand_").removesuffix("_long")


def of_programs(document: Mapping[str, Any]) -> str:
    """How many families each tier accepted, and which of those differ."""
    counts = document["counts"]

    def number(*starts: str) -> int:
        return sum(n for what, n in counts.items() if what.startswith(starts))

    refused = ("refused: ", "refused at the real sizes: ", "cannot be judged: ")
    row = (
        counts["programs"],
        counts["families"],
        number("accepted: same"),
        number("accepted: different"),
        number("fault of the proof"),
        number(*(f"{start}different" for start in refused)),
    )
    titles = (
        "programs", "families", "accepted, float64 sees no difference", "accepted and different",
        "proved and different", "different, refused",
    )  # fmt: skip
    alike = number(*(f"{start}same" for start in refused))
    rest = (
        f"{number('proved'):,} families are proved. {number('programs without a family'):,}"
        f" programs have no family. {alike:,} families in which float64 sees no difference were"
        f" refused all the same. Commit {document['commit']}."
    )
    lines = [
        f"| {' | '.join(titles)} |",
        "|---:|---:|---:|---:|---:|---:|",
        f"| {' | '.join(f'{cell:,}' for cell in row)} |",
        "",
        rest,
    ]
    for fault in document["faults"]:
        title, _, rest = fault.partition("\n")
        lines += ["", f"Accepted and different, {title}:", "", "```", rest.split("\n\n")[0], "```"]
    return "\n".join(lines)


def main() -> int:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, prog="adversarial.mutants_page")
    parser.add_argument("--mutants", type=Path, default=MUTANTS)
    parser.add_argument("--random", type=Path, default=RANDOM)
    parser.add_argument("--page", type=Path, default=PAGE)
    asked = parser.parse_args()
    random = json.loads(asked.random.read_text(encoding="utf-8"))
    text = asked.page.read_text(encoding="utf-8")
    asked.page.write_text(page(text, read(asked.mutants), random), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
