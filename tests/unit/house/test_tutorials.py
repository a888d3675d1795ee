"""Every tutorial runs on a CPU, its blocks as one script, and prints what it shows."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]
TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_there_is_a_tutorial():
    assert TUTORIALS


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_runs_and_prints_what_it_shows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    page: Path,
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    # A file and not a string: the tracer and torch.compile look for the source of functions.
    script = tmp_path / "tutorial.py"
    script.write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out
    for shown in blocks(page, "text"):
        for part in shown.split("...\n"):
            assert part in printed
