"""The answer of a worker to a task, without the measurement."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.suite import families, row, row_worker
from benchmarks.workloads.suites import SMOKE, named
from mirage_py.errors import InputError
from mirage_py.runtime.base import stages
from mirage_py.runtime.env import environment
from mirage_py.targets import H200

WORKLOAD = named(SMOKE)[0]


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every stage that is told."""
    found: list[str] = []
    monkeypatch.setattr(stages, "_LISTENERS", [found.append])
    return found


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """Every call of the row's measurement."""
    calls: list[tuple] = []

    def measure_row(workload, searched, peers, setting, note_stage):
        calls.append((workload, searched, peers, setting))
        note_stage("timing")
        return {"workload": workload.name}, [{"us": 1.0}]

    monkeypatch.setattr(row, "measure_row", measure_row)
    monkeypatch.setattr(row_worker, "_target", lambda: H200)
    monkeypatch.setattr(row_worker, "_launch_us", lambda: 1.5)
    return calls


def task(**more: object) -> dict[str, object]:
    settings = {
        "families": None,
        "plans": 3,
        "effort": "quick",
        "backend": "auto",
        "peers": [],
        "compile_workers": 2,
    }
    return {"key": WORKLOAD.key, **settings, **more}


def test_without_searches_it_searches(measured: list[tuple], heard: list[str]):
    found = row_worker.measure(task(effort="none"))
    workload, searched, peers, setting = measured[0]
    assert workload == WORKLOAD
    assert len(searched.plans) == 3
    assert {"eager", "compile", "compile_max_autotune"} <= set(peers)
    assert (setting.target, setting.launch_us, setting.compile_workers) == (H200, 1.5, 2)
    assert found["row"].keys() == {"workload", "row_s"}
    assert found["measurements"] == [{"us": 1.0}]
    assert heard[-1] == "timing"


def test_searches_that_were_made_before_are_read(tmp_path: Path, measured: list[tuple]):
    searched = families.search_workload(WORKLOAD, H200, "none")
    families.write(searched, tmp_path / f"{WORKLOAD.key}.json")
    row_worker.measure(task(families=str(tmp_path), plans=2))
    assert measured[0][1].plans == searched.plans[:2]
    assert len(searched.candidates[0].kernels) == len(searched.plans[0].ugraph.kernels)


def test_eager_always_runs(tmp_path: Path, measured: list[tuple], monkeypatch: pytest.MonkeyPatch):
    nothing = families.Searched(None, (), 0.0, 0.0)
    monkeypatch.setattr(families, "search_workload", lambda *_: nothing)
    row_worker.measure(task(peers=["compile"]))
    assert list(measured[0][2]) == ["eager", "compile"]


def test_a_search_that_is_missing_is_said(tmp_path: Path, measured: list[tuple]):
    with pytest.raises(FileNotFoundError, match=WORKLOAD.key):
        row_worker.measure(task(families=str(tmp_path)))


def test_a_worker_needs_a_gpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(environment, "detect_target", lambda: None)
    row_worker._target.cache_clear()
    with pytest.raises(InputError, match="no NVIDIA GPU"):
        row_worker._target()
