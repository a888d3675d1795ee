"""The benchmark suite: every workload beside its peers, on this machine's GPUs.

python -m benchmarks.families DIR                     # search, where egglog is: no GPU
python -m benchmarks --families DIR -o OUT            # measure, where the GPU is: no egglog
python -m benchmarks --compare OLD NEW                # two result files, cell by cell
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import table
from benchmarks.options import DEFAULT_FOLDER, EFFORTS, Options
from benchmarks.run_suite import run_suite
from benchmarks.suites import ALL
from mirage_py.errors import MirageError

INTERRUPTED = 130


def main(arguments: Sequence[str]) -> int:
    """Run what the command line says; the exit code."""
    chosen = _parser().parse_args(arguments)
    try:
        return _measure(chosen, arguments)
    except MirageError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _measure(chosen: argparse.Namespace, arguments: Sequence[str]) -> int:
    options = Options(
        suite=chosen.suite,
        only=_names(chosen.only),
        peers=_names(chosen.peers),
        folder=chosen.out,
        families=chosen.families,
        plans=chosen.plans,
        effort=chosen.effort,
        gpus=chosen.gpus,
        seconds=chosen.seconds,
        row_seconds=chosen.row_seconds,
        resume=chosen.resume,
        commit=chosen.commit,
        command=shlex.join(["python", "-m", "benchmarks", *arguments]),
    )
    print(table.header(), flush=True)

    def on_row(row: dict[str, Any]) -> None:
        print(table.line(row), flush=True)

    record = run_suite(options, lambda text: print(text, file=sys.stderr, flush=True), on_row)
    print(f"\n{table.table(record.document())}\n\n{record.path}", flush=True)
    return INTERRUPTED if "interrupted" in record.notes else 0


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--suite", default=ALL, help=f"which workloads (default: {ALL})")
    parser.add_argument("--only", default="", metavar="KEYS", help="such as gqa-b1, by comma")
    parser.add_argument("--peers", default="", metavar="LIST", help="by comma (default: all)")
    parser.add_argument("-o", "--out", type=Path, default=DEFAULT_FOLDER, metavar="DIR")
    parser.add_argument("--families", type=Path, metavar="DIR", help="searches made before")
    parser.add_argument("--plans", type=int, metavar="N", help="plans that are tuned at most")
    parser.add_argument("--effort", choices=EFFORTS, default="quick")
    parser.add_argument("--gpus", type=int, metavar="N", help="at most (default: all visible)")
    parser.add_argument("--seconds", type=float, metavar="S", help="of the whole run")
    parser.add_argument("--row-seconds", type=float, default=300.0, metavar="S", help="of a row")
    parser.add_argument("--resume", action="store_true", help="keep the rows that DIR has")
    parser.add_argument("--commit", default="", metavar="SHA", help="of a tree without git")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
