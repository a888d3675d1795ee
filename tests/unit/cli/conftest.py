from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]

SOFTMAX = "B = 3, S = 10\nX[B, S] : f32\nY[b, s] = exp(X[b, s]) / sum[s](exp(X[b, s]))\n"


@dataclass(frozen=True)
class Outcome:
    """How a command line ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """stdout as the one JSON document that it must be."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


Command = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test has found is not known to the next."""
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Command:
    """``cli("show", path)`` runs a command line in this process."""
    from mirage_py.cli.shell.run import run

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture
def softmax_spec(tmp_path: Path) -> Path:
    path = tmp_path / "softmax.math"
    path.write_text(SOFTMAX, encoding="utf-8")
    return path
