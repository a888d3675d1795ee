"""A decode loop whose cache grows: what it counts, and all but the clock on a CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.whole_models import growing_context
from benchmarks.whole_models.growing_context import line_of, lines_of, medians


def test_medians_of_ranges_of_contexts():
    passes = [{n: n * 1e-6 * k for n in range(60, 71)} for k in (1, 3, 2)]
    assert medians(passes) == {"all": 130.0, "60 to 64": 124.0, "65 to 70": 135.0}


def test_lines():
    row = {"us": None, "error": 0.01, "graphs": 1, "first_loop_s": 2.0, "stalls": [3]}
    line = line_of("ours", {**row, "first_us": 900.0})
    assert line.startswith("ours                  not timed; off by 0.01; 1 graphs, first loop 2.0")
    region = {"searches": 2, "by_kernel": 5, "by_operators": 1, "table": ["the table"]}
    table, last = lines_of([region])
    assert table == "the table"
    assert "at most 2 searches each, 5 sizes by a kernel, 1 by torch's operators" in last


def test_the_smoke_run(tmp_path: Path):
    pytest.importorskip("transformers")
    path = tmp_path / "out.json"
    asked = ["--smoke", "--layers", "1", "--prompt", "3", "--tokens", "7", "-o", str(path)]
    result = CliRunner().invoke(growing_context.main, asked, catch_exceptions=False)
    assert result.exit_code == 0
    document = json.loads(path.read_text(encoding="utf-8"))
    ours = document["rows"]["ours"]
    assert (ours["graphs"], ours["us"]) == (1, None)
    assert ours["error"] < 1e-5
    (region,) = document["open_regions"]
    assert (region["searches"], region["by_kernel"], region["by_operators"]) == (1, 4, 0)
