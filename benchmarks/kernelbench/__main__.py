"""``python -m benchmarks.kernelbench CHECKOUT``; see command.py."""

from __future__ import annotations

from benchmarks.kernelbench.command import main

if __name__ == "__main__":
    main()
