"""The command line: one file per command, imported when it is called (docs/reference/cli.md)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The command ``mirage-py``; ends the process with an exit code of docs/reference/cli.md."""
    import warnings

    from mirage_py.cli.shell.run import run, show_warning

    warnings.showwarning = show_warning
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))
