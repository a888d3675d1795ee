"""Searching ahead: what is written, and for which workloads."""

from __future__ import annotations

from pathlib import Path

import pytest
from plans import two_kernel_plan

from benchmarks import families
from benchmarks.suites import ALL, SMOKE, named, suites

PLAN = two_kernel_plan()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """Key, target and effort of each search."""
    found: list[tuple[str, str, str]] = []

    def search_workload(workload, target, effort):
        found.append((workload.key, target.name, effort))
        return families.Searched(PLAN.ugraph.program, (families.Candidate(PLAN, 5.0),), 1.0, 0.5)

    monkeypatch.setattr(families, "search_workload", search_workload)
    return found


def test_a_file_for_each_workload(tmp_path: Path, asked: list[tuple[str, str, str]]):
    families.main([str(tmp_path / "new"), "gqa-b8", "--target", "a100", "--effort", "full"])
    assert asked == [("gqa-b8", "a100", "full")]
    assert families.read(tmp_path / "new/gqa-b8.json").plans == (PLAN,)


def test_a_suite(tmp_path: Path, asked: list[tuple[str, str, str]]):
    families.main([str(tmp_path), "--suite", "paper"])
    assert [key for key, _, _ in asked] == [w.key for w in named("paper")]


@pytest.mark.parametrize("arguments", [["nonsense-b1"], ["--suite", "x"], ["--target", "tpu"]])
def test_what_there_is_none_of_is_refused(
    tmp_path: Path, asked: list[tuple[str, str, str]], arguments: list[str]
):
    with pytest.raises(SystemExit):
        families.main([str(tmp_path), *arguments])
    assert asked == []


def test_all_is_every_workload_once_but_those_that_measure_nothing():
    keys = [w.key for w in named(ALL)]
    assert len(keys) == len(dict.fromkeys(keys))
    assert {"paper", "models", "prefill", "decode", "lora4k", SMOKE, ALL} <= set(suites())
    assert not any(w.key in keys for w in named(SMOKE))
    assert all(w.key in keys for w in named("models"))
