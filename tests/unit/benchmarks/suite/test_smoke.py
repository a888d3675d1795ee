"""``python -m benchmarks`` without a GPU: everything but the clock, and it says so."""

from __future__ import annotations

import gzip
import json
import runpy
import sys
from pathlib import Path

import pytest

from benchmarks.report.record import MEASUREMENTS
from benchmarks.suite.families import search_workload
from benchmarks.suite.smoke import NOTHING, smoke_row
from benchmarks.workloads.suites import SMOKE, named
from mirage_py.reasons import Code, reason
from mirage_py.targets import H200
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.text.json_form import from_json


def test_the_whole_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    command = ["benchmarks", "--suite", SMOKE, "--json", "-o", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("benchmarks", run_name="__main__")
    out, err = capsys.readouterr()
    assert ended.value.code == 0, err
    document = json.loads(out)
    assert json.loads((tmp_path / "smoke-suite.json").read_text()) == document
    assert NOTHING in document["notes"]
    assert NOTHING in err
    assert [r["workload"] for r in document["rows"]] == [w.name for w in named(SMOKE)]
    for row in document["rows"]:
        assert row["ours_us"] is row["result_us"] is row["launch_us"] is None
        assert set(row["peers_us"].values()) == {None}
        assert 0 < row["max_rel_error"] < row["error_bound"]
        assert row["peers"]["eager"]["agrees"]
        assert row["notes"] == []
    with gzip.open(tmp_path / MEASUREMENTS, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    assert len(lines) == sum(r["candidates"] for r in document["rows"])
    assert all(isinstance(from_json(line["plan"]), Plan) for line in lines)
    assert {line["us"] for line in lines} == {None}
    assert (tmp_path / "smoke-suite.csv").exists()


def test_a_kernel_that_is_wrong_has_no_error_to_show(monkeypatch: pytest.MonkeyPatch):
    from benchmarks.suite import smoke
    from mirage_py.runtime.cpu.cpu_run import CpuCheck
    from mirage_py.verify.numerical_check.numerical_check import FloatEvidence

    wrong = FloatEvidence(0.5, 1e-2, None, False, reason(Code.NOT_FINITE, "Y[0]"))
    cpu_check = CpuCheck(wrong, "interpreter", wrong.reason, ("a note",))
    monkeypatch.setattr(smoke, "check_on_cpu", lambda *_, **__: cpu_check)
    workload = named(SMOKE)[0]
    row, _ = smoke_row(workload, search_workload(workload, H200, "none"))
    assert row["max_rel_error"] is None
    assert row["notes"] == ["Y[0] is not finite", "a note"]
