"""Two reports of one program: equal, but for the seconds and the folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mirage_py

SPEC = "B = 3, S = 10\nX[B, S] : f32\nY[b, s] = softmax[s](X[b, s])\n"


def _report(folder: Path) -> dict[str, Any]:
    result = mirage_py.optimize(mirage_py.parse(SPEC), target="h200", backend="triton")
    mirage_py.save(result, folder)
    text = (folder / "report.json").read_text(encoding="utf-8")
    assert str(folder) in text
    found = json.loads(text.replace(str(folder), "FOLDER"))
    assert found["search"].pop("seconds") >= 0
    for by_the_clock in ("date", "timeline", "seconds"):
        assert found["record"].pop(by_the_clock)
    assert isinstance(found, dict)
    return found


def test_two_runs_write_the_same_report(tmp_path: Path) -> None:
    assert _report(tmp_path / "first") == _report(tmp_path / "second")
