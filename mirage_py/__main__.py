"""``python -m mirage_py`` is the command ``mirage-py``."""

from __future__ import annotations

from mirage_py.cli import main

if __name__ == "__main__":
    main()
