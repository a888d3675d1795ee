"""``python -m benchmarks.whole_models``; see command.py."""

from __future__ import annotations

from benchmarks.whole_models.command import main

if __name__ == "__main__":
    main()
