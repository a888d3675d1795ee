"""How many rules of TASO and tensat the database covers.

``python -m benchmarks.rules PATH_TO_TASO PATH_TO_TENSAT [-o FILE]`` reads their rule files from
checkouts of the two projects. A rule is covered if both sides are one graph in our operators, or
have one normal form by our proved rules, or if saturation with these makes them equal, from the
left side or from both sides. Only equations about operators that the rules know count; the others
are listed by operator.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.report.provenance import commit
from benchmarks.rules import taso, tensat
from benchmarks.rules.coverage import COVERED, OTHER, Answer, answer
from mirage_py.axioms.substitutions.database import proved_rules

COUNTED = (
    "a rule is covered if both sides are one graph in our operators, or have one normal form by "
    "proved rules, or if saturation with these, of the left side alone or of both, makes them "
    "equal; equations about other operators do not count"
)


def main() -> None:
    """Read, decide, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rules", description=__doc__)
    parser.add_argument("taso", type=Path, help="folder with graph_subst.pb")
    parser.add_argument("tensat", type=Path, help="folder with single_rules.txt and the others")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    sets = {
        "TASO graph_subst.pb": taso.read(options.taso / "graph_subst.pb"),
        "tensat multi_rules.txt, in pairs": tensat.read(
            options.tensat / "multi_rules.txt", outputs=2
        ),
        "tensat converted.txt": tensat.read(options.tensat / "converted.txt"),
        "tensat single_rules.txt": tensat.read(options.tensat / "single_rules.txt"),
    }
    rules = proved_rules()
    rows: dict[str, dict[str, Any]] = {}
    for name, some in sets.items():
        rows[name] = row = _summary([answer(rule, rules) for rule in some])
        print(f"{name}: {row['covered']} of {row['about these operators']} ({row['share']:.1%})")
        print(
            "  " + ", ".join(f"{kind} {count}" for kind, count in row["kinds"].items()), flush=True
        )
        if options.output:
            report = {"rules": len(rules), "counted": COUNTED, "sets": rows}
            document = {"commit": commit(), **report}
            options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _summary(answers: list[Answer]) -> dict[str, Any]:
    kinds = Counter(a.kind for a in answers)
    about = len(answers) - kinds[OTHER]
    covered = sum(kinds[kind] for kind in COVERED)
    return {
        "rules": len(answers),
        "about these operators": about,
        "covered": covered,
        "share": round(covered / max(about, 1), 4),
        "kinds": {kind: kinds[kind] for kind in (*COVERED, *sorted({*kinds} - {*COVERED}))},
        "other operators": dict(Counter(a.detail for a in answers if a.kind == OTHER)),
        "uncovered": [
            {"rule": a.name, "why": a.kind, "equation": a.detail}
            for a in answers
            if a.kind not in (*COVERED, OTHER)
        ],
    }


if __name__ == "__main__":
    main()
