"""The result file of a run that may end at any moment."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from unit.benchmarks.rows import document, row

from benchmarks.farm import gpus
from benchmarks.farm.farm import Outcome
from benchmarks.report.record import MEASUREMENTS, Record, read_document
from benchmarks.report.summary import key_of
from benchmarks.suite import run_suite
from benchmarks.suite.options import Options
from benchmarks.suite.run_suite import _Run, new_record
from mirage_py.errors import InputError

RESULTS = Path(__file__).resolve().parents[4] / "benchmarks/results"
READY = {"launch_us": 1.5, "machine": {"gpu": "NVIDIA H200"}}


def record(folder: Path) -> Record:
    return Record(folder, "h200", {"gpu": "NVIDIA H200"}, "python -m benchmarks", "0123456")


def test_every_row_is_on_disk_before_the_next_begins(tmp_path: Path):
    kept = record(tmp_path)
    for number in (1, 8):
        kept.add(row("gqa", 8.0, batch=number, eager=16.0), [{"us": 1.0}, {"us": 2.0}])
        written = read_document(tmp_path)
        assert [key_of(r) for r in written["rows"]][-1] == f"gqa-b{number}"
        with gzip.open(tmp_path / MEASUREMENTS, "rt") as file:
            assert len([json.loads(line) for line in file]) == 2 * len(written["rows"])
    assert written["summary"]["geomean"]["eager"] == {"cells": 2, "ratio": 2.0}


def test_a_row_that_failed_first_and_came_later_did_not_fail(tmp_path: Path):
    kept = record(tmp_path)
    kept.failed["gqa-b1"] = "it hung"
    kept.add(row("gqa", 8.0, eager=16.0), [])
    assert kept.document()["failed"] == {}


@pytest.mark.parametrize("name", ["h200-spine.json", "h200-search.json"])
def test_results_of_earlier_harnesses_are_read(name: str):
    assert len(read_document(RESULTS / name)["rows"]) > 5


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": 2}', '{"schema": 1, "rows": [{"operator": "exp"}]}']
)
def test_what_is_no_result_file_is_refused(tmp_path: Path, text: str):
    (tmp_path / "x-suite.json").write_text(text)
    with pytest.raises(InputError):
        read_document(tmp_path)


def test_a_folder_must_hold_one_result(tmp_path: Path):
    with pytest.raises(InputError, match="holds 0 result files"):
        read_document(tmp_path)


def options(folder: Path, **more: object) -> Options:
    return Options(suite="paper", folder=folder, commit="abc", command="again", **more)


def run_of(folder: Path, monkeypatch: pytest.MonkeyPatch, **more: object) -> _Run:
    monkeypatch.setattr(gpus, "driver_facts", lambda: {"driver": "570"})
    run = _Run(options(folder, **more), 4, lambda _: None, lambda _: None)
    run.ready("0", READY)
    return run


def test_the_record_is_called_after_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = run_of(tmp_path, monkeypatch)
    job = run_suite.Job("gqa-b8", {})
    value = {"row": row("gqa", 8.0, batch=8, eager=9.0), "measurements": []}
    run.outcome(Outcome(job, "3", 2, 10.0, value))
    run.outcome(Outcome(run_suite.Job("lora-b1", {}), "0", 2, 0.0, None, "it hung"))
    found = json.loads((tmp_path / "h200-suite.json").read_text())
    assert found["machine"] == {"gpu": "NVIDIA H200", "driver": "570", "gpus": 4}
    assert (found["rows"][0]["gpu"], found["rows"][0]["attempt"]) == ("3", 2)
    assert found["failed"] == {"lora-b1": "it hung"}


def test_resuming_keeps_the_rows_and_says_who_made_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    old = document(row("gqa", 8.0, eager=9.0), failed={"lora-b1": "it hung"})
    (tmp_path / "h200-suite.json").write_text(json.dumps(old))
    run = run_of(tmp_path, monkeypatch, resume=True)
    assert run.is_kept(run_suite.Job("gqa-b1", {}))
    assert not run.is_kept(run_suite.Job("lora-b1", {}))
    found = read_document(tmp_path)
    assert found["runs"] == [
        {"command": "python -m benchmarks", "commit": "0123456", "date": "2026-01-01"}
    ]
    assert (found["command"], found["failed"]) == ("again", {})


def test_without_resuming_the_measurements_begin_anew(tmp_path: Path):
    (tmp_path / MEASUREMENTS).write_text("old")
    new_record(options(tmp_path), {}, "h200")
    assert not (tmp_path / MEASUREMENTS).exists()


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA GH200 480GB", "gh200-480gb"),
    ],
)
def test_short_names(gpu: str, name: str):
    assert gpus.short_name(gpu) == name


def test_without_a_gpu_there_is_nothing_to_measure_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(gpus, "visible", lambda: ())
    with pytest.raises(InputError, match="no NVIDIA GPU"):
        run_suite.run_suite(options(tmp_path), lambda _: None, lambda _: None)
