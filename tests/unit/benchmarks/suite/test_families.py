"""Searching ahead: what is written, and for which workloads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from plans import two_kernel_plan

from benchmarks.suite import families
from benchmarks.workloads.suites import ALL, SMOKE, named, suites

PLAN = two_kernel_plan()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Key, target, effort and back end of each search."""
    found: list[tuple[str, ...]] = []

    def search_workload(workload, target, effort, backend):
        found.append((workload.key, target.name, effort, backend))
        return families.Searched(PLAN.ugraph.program, (families.Candidate(PLAN, 5.0),), 1.0, 0.5)

    monkeypatch.setattr(families, "search_workload", search_workload)
    return found


def test_a_file_for_each_workload(tmp_path: Path, asked: list[tuple[str, ...]]):
    families.main([str(tmp_path / "new"), "gqa-b8", "--target", "a100", "--effort", "full"])
    assert asked == [("gqa-b8", "a100", "full", "triton")]
    assert families.read(tmp_path / "new/gqa-b8.json").plans == (PLAN,)


def test_plans_of_both_back_ends_in_one_file(tmp_path: Path):
    plans = [replace(PLAN, backend=b) for b in ("triton", "cuda", "cuda", "triton")]
    found = tuple(families.Candidate(p, 5.0 + n) for n, p in enumerate(plans))
    path = tmp_path / "gqa-b8.json"
    families.write(families.Searched(PLAN.ugraph.program, found, 1.0, 0.5), path)
    assert families.read(path).plans == tuple(plans)
    assert families.read(path, 3).predicted_us == (5.0, 6.0, 8.0)
    assert families.read(path, 1, "cuda").candidates == (found[1],)
    assert families.read(path, None, "triton").predicted_us == (5.0, 8.0)


def test_a_suite(tmp_path: Path, asked: list[tuple[str, ...]]):
    families.main([str(tmp_path), "--suite", "paper"])
    assert [key for key, *_ in asked] == [w.key for w in named("paper")]


@pytest.mark.parametrize("arguments", [["nonsense-b1"], ["--suite", "x"], ["--target", "tpu"]])
def test_what_there_is_none_of_is_refused(
    tmp_path: Path, asked: list[tuple[str, ...]], arguments: list[str]
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
