"""``python -m benchmarks.wild``; see command.py."""

from __future__ import annotations

from benchmarks.wild.command import main

if __name__ == "__main__":
    main()
