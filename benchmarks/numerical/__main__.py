"""``python -m benchmarks.numerical``; see command.py."""

from __future__ import annotations

from benchmarks.numerical.command import main

if __name__ == "__main__":
    raise SystemExit(main())
