"""``python -m benchmarks.ablation``; see command.py."""

from __future__ import annotations

import sys

from benchmarks.ablation.command import main

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
