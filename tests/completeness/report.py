"""The table of all programs: ``PYTHONPATH=tests python -m completeness.report [NAME ...]``.

With COMPLETENESS=nightly in the environment it goes further.
"""

from __future__ import annotations

import os
import sys
import time

from completeness.audit import HEADER, audit
from completeness.programs import CASES, Looped


def chosen() -> list[tuple[str, Looped, int]]:
    """Program, looped dimensions and number of operators of each row."""
    further = os.environ.get("COMPLETENESS") == "nightly"
    return [
        (name, looped, most)
        for name, case in CASES.items()
        for looped, most in ({**case.most, **case.further} if further else case.most).items()
    ]


def main() -> int:
    """Print a row for each; the status is 1 if something is missing."""
    missing = 0
    sys.stdout.write(f"{HEADER}\n")
    for name, looped, most in chosen():
        if name in sys.argv[1:] or not sys.argv[1:]:
            started = time.process_time()
            report = audit(name, looped, most)
            seconds = time.process_time() - started
            sys.stdout.write(f"{report}  ({seconds:.1f} s)\n")
            for graph in (*report.missing, *report.unmet):
                sys.stdout.write(f"    {graph}\n")
            sys.stdout.flush()
            missing += len(report.missing) + len(report.unmet)
    return min(1, missing)


if __name__ == "__main__":
    raise SystemExit(main())
