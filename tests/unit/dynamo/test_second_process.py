"""Cached regions in the next process: nothing is searched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from dynamo_layers import compile_layers

SECOND = (
    "import json; from dynamo_layers import compile_layers; print(json.dumps(compile_layers()))"
)


def test_the_second_process_searches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))
    searched, lines = compile_layers()
    # Eight layers; the first and the last one may be cut differently from the others.
    assert 1 <= len(searched) <= 3
    assert len(dict.fromkeys(searched)) == len(searched)
    assert any("nothing was found that is faster" in line for line in lines)
    done = subprocess.run(
        [sys.executable, "-c", SECOND],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], lines]
