"""The commit of a result file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from mirage_py import __version__

# For copies of the tree whose history is another one's, or that have none.
VARIABLE = "MIRAGE_PY_COMMIT"


def commit(given: str = "") -> str:
    """What the caller or the environment says; else that of the checkout that this file is in; else
    that it is unknown, with the version of the package.
    """
    said = given or os.environ.get(VARIABLE, "").strip()
    if said:
        return said
    root = Path(__file__).resolve().parents[2]
    # Not that of somebody else's repository around it.
    if (root / ".git").exists():
        command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    return f"unknown, mirage-py {__version__}"
