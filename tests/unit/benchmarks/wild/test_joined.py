"""Rows of two runs on a GPU in one file."""

from __future__ import annotations

import json

from click.testing import CliRunner

from benchmarks.wild.command import fill_page, main
from benchmarks.wild.summary import measured_summary


def _document(commit, **ratios):
    rows = [
        {
            "program": name,
            "against_best": ratio,
            "first_call_s": {"decorator": 9.0},
            "faults": {},
            "times_us": {},
        }
        for name, ratio in ratios.items()
    ]
    return {"commit": commit, "rows": rows}


def test_later_rows_replace_earlier_ones(tmp_path):
    earlier, later = tmp_path / "earlier.json", tmp_path / "later.json"
    first = _document("a", greedy=0.5, swiglu=1.0)
    first["rows"][1]["commit"] = "older"
    earlier.write_text(json.dumps(first))
    later.write_text(json.dumps(_document("b", greedy=2.0, channel_norm=1.5)))
    done = CliRunner().invoke(main, ["--join", str(later), "-o", str(earlier)])
    assert done.exit_code == 0, done.output
    found = json.loads(earlier.read_text())
    commits = {row["program"]: row["commit"] for row in found["rows"]}
    assert commits == {"swiglu": "older", "greedy": "b", "channel_norm": "b"}
    assert found["commit"] == "b"
    assert found["summary"]["programs"] == 3
    assert found["summary"]["below_0_98"] == 0
    assert CliRunner().invoke(main, ["--join", str(later)]).exit_code == 2


def test_the_page_says_what_a_gpu_said(tmp_path):
    page = tmp_path / "wild.md"
    page.write_text("<!-- wild-gpu -->\n<!-- /wild-gpu -->\n")
    document = _document("abcdef0123", greedy=0.5, swiglu=1.5)
    for row in document["rows"]:
        row |= {"ours_us": 2.0, "times_us": {"eager": 9.0, "compile": 3.0, "decorator": 2.0}}
        row["served"] = "mirage_py: grid m by 1"
    document["rows"][0]["faults"] = {"backend": "off"}
    document |= {"machine": {}, "summary": measured_summary(document["rows"])}
    fill_page(document, page)
    first, _, _, _, best, worst, _ = page.read_text().splitlines()[1:]
    assert first.startswith("2 programs, 2 of them timed: geometric mean 0.866x")
    # The table's ratios are given; those of each way are of its times.
    assert first.endswith("By itself the decorator has 1.500x and 0 below 0.98x.")
    assert best == "| swiglu | 2.0 | 3.0 | compile | 1.500x | 9 | mirage_py | abcdef01 |"
    assert "mirage_py; **backend not right**" in worst
