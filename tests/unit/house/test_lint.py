"""The rules of style and types are part of the tests: a commit that breaks them is red."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "arguments",
    [
        ["ruff", "check"],
        ["ruff", "format", "--check"],
        pytest.param(["mypy"], marks=pytest.mark.slow),
    ],
)
def test_passes(root: Path, arguments: list[str]):
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n`make check` runs the same"
