"""``python -m benchmarks.partial``; see command.py."""

from __future__ import annotations

from benchmarks.partial.command import main

if __name__ == "__main__":
    raise SystemExit(main())
