"""Of which commit a result file is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.report.provenance import VARIABLE, commit

RESULTS = Path(__file__).parents[4] / "benchmarks" / "results"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda p: p.stem)
def test_every_result_file_says_its_commit_or_that_it_is_unknown(path: Path) -> None:
    said = json.loads(path.read_text(encoding="utf-8"))["commit"]
    assert re.search(r"\b[0-9a-f]{7,40}\b", said) or said.startswith("unknown")


def test_what_the_caller_says_comes_before_the_environment_and_git(monkeypatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert re.match(r"[0-9a-f]{7,40}|unknown", commit())
    monkeypatch.setenv(VARIABLE, "0123456789ab")
    assert commit() == "0123456789ab"
    assert commit("abcdef012345") == "abcdef012345"
