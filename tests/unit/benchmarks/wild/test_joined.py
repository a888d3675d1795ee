"""Rows of two runs on a GPU in one file."""

from __future__ import annotations

import json

from click.testing import CliRunner

from benchmarks.wild.command import main


def _document(commit, **ratios):
    rows = [
        {"program": name, "against_best": ratio, "first_call_s": {"decorator": 9.0}, "faults": {}}
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
