"""``python -m benchmarks.search``; see command.py."""

from __future__ import annotations

import sys

from benchmarks.search.command import main

if __name__ == "__main__":
    main(sys.argv[1:])
