"""`python -m benchmarks.gallery OUT`: reports of the examples, a whole model and the suite."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.gallery.gallery import SEARCHED, build, search


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gallery", description=__doc__)
    parser.add_argument("out", type=Path, nargs="?", default=Path("gallery"))
    parser.add_argument(
        "--search",
        action="store_true",
        help=f"first make the artifacts in {SEARCHED} anew: with a GPU their times are measured",
    )
    parser.add_argument("--target", default="auto", help="of --search, as in mirage-py")
    options = parser.parse_args()
    if options.search:
        search(options.target)
    for path in build(options.out):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
