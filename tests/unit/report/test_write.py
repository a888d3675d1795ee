"""What reports are made of: artifacts, packed artifacts, benchmark files; nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from plans import rms_plan

from mirage_py.errors import FormatError, InputError
from mirage_py.report.packed import packed
from mirage_py.report.write import html_of, write_report
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.runtime.store.artifact import Artifact
from mirage_py.ugraph.ir.plan import Plan

PLAN = rms_plan()
REPORT = {
    "target": "h200",
    "best": {"name": "rms", "time_us": 5.0, "speedup": 0.5, "source": "measured"},
    "baseline": {"name": "compile", "time_us": 2.5, "source": "measured"},
    "candidates": [
        {"name": "a", "kind": "one kernel", "backend": "triton", "tiles": "t", "time_us": None,
         "source": "measured", "passed": False, "reason": "<b>it does not compile</b>"},
    ],
}  # fmt: skip
ROW = {"workload": "w", "batch": 1, "ours_us": 2.0, "peers_us": {"eager": 1.0, "compile": 3.0}}


def test_a_packed_artifact_has_the_same_report(tmp_path: Path) -> None:
    artifact = Artifact(PLAN.ugraph.program, PLAN, REPORT)
    path = tmp_path / "packed.json"
    path.write_text(packed(artifact), "utf-8")
    page = write_report(path, tmp_path / "r.html")
    assert page.read_text("utf-8") == html_of(artifact)


def test_a_loss_and_a_reason_are_said_and_escaped() -> None:
    text = html_of(Artifact(PLAN.ugraph.program, PLAN, REPORT))
    assert "0.50x measured: slower than the baseline" in text
    assert "slower than compile" in text
    assert "Faster than ours: compile (2.00x)." in text
    assert "fell: &lt;b&gt;it does not compile&lt;/b&gt;" in text


@pytest.mark.parametrize("plan", [PLAN, None], ids=["kernels", "the program itself"])
def test_kernels_report_what_their_result_is(tmp_path: Path, plan: Plan | None) -> None:
    artifact = Artifact(PLAN.ugraph.program, plan, REPORT)
    page = artifact.runner().report(tmp_path / "r.html")  # type: ignore[attr-defined]
    assert page.read_text("utf-8") == html_of(artifact)


def test_a_kernel_of_which_nothing_is_known_has_no_report(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing is known of this kernel"):
        PlanRunner(PLAN).report(tmp_path / "r.html")
    assert not list(tmp_path.iterdir())


def test_a_report_that_cannot_be_written(tmp_path: Path) -> None:
    """On the command line it was an internal error."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "held").write_text("")
    with pytest.raises(InputError, match="the report cannot be written") as caught:
        write_report(Artifact(PLAN.ugraph.program, PLAN, REPORT), tmp_path / "folder")
    assert caught.value.where == str(tmp_path / "folder")
    assert caught.value.repair == "make room, or name another file"


def test_rows_that_lost_are_named(tmp_path: Path) -> None:
    path = tmp_path / "suite.json"
    path.write_text(json.dumps({"rows": [ROW, {**ROW, "batch": 2, "ours_us": 0.5}]}), "utf-8")
    text = html_of(path)
    assert "1 row slower than a peer" in text
    assert "w-b1 (0.50x)" in text
    assert "w-b2 (" not in text
    assert "0.50x measured" in html_of(path, only="w-b1")


def test_what_was_not_timed_is_not_called_measured(tmp_path: Path) -> None:
    path = tmp_path / "smoke.json"
    row = {**ROW, "ours_us": None, "peers_us": {"eager": None}}
    path.write_text(json.dumps({"rows": [row]}), "utf-8")
    text = html_of(path)
    assert "No: nothing was timed" in text
    assert "not measured" in text
    assert ">measured<" not in text


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": []}', '{"rows": [{"x": 1}]}'])
def test_anything_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text, "utf-8")
    with pytest.raises(FormatError):
        html_of(path)
