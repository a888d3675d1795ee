"""``python -m benchmarks OPTIONS`` is ``mirage-py bench OPTIONS``."""

from __future__ import annotations

import sys

from mirage_py.cli.shell.run import run

if __name__ == "__main__":
    sys.exit(run(["bench", *sys.argv[1:]]))
