"""The table of all programs: ``PYTHONPATH=tests python -m completeness.report [NAME ...]``.

With COMPLETENESS=nightly in the environment it goes further.
"""

from __future__ import annotations

import os
import sys
import time

from completeness.audit import HEADER, audit
from completeness.programs import Subject, subjects


def chosen() -> tuple[Subject, ...]:
    """The rows of the table."""
    return subjects(further=os.environ.get("COMPLETENESS") == "nightly")


def main() -> int:
    """Print a row for each; the status is 1 if something is missing."""
    missing = 0
    sys.stdout.write(f"{HEADER}\n")
    for subject in chosen():
        if subject.name in sys.argv[1:] or not sys.argv[1:]:
            started = time.process_time()
            report = audit(subject)
            seconds = time.process_time() - started
            sys.stdout.write(f"{report}  ({seconds:.1f} s)\n")
            for graph in (*report.missing, *report.unmet):
                sys.stdout.write(f"    {graph}\n")
            sys.stdout.flush()
            missing += len(report.missing) + len(report.unmet)
    return min(1, missing)


if __name__ == "__main__":
    raise SystemExit(main())
