"""What was tuned here teaches in which order to try plans."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from benchmarks.calibration import learn
from benchmarks.calibration.calibrate import MEASUREMENTS
from mirage_py.runtime.tune import measurements
from mirage_py.runtime.tune.measured import Measured
from mirage_py.search.rank.ranker import ranker_of
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.text.json_form import from_json

KEYS = ("ntrans-b1", "ntrans-b8", "lora-b1", "rmsnorm_prefill-b2048", "gatedmlp_prefill-b512", "x")


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Twenty plans of five programs were tuned here, and one that was wrong."""
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(learn, "_TREES", 10)
    plans = []
    with gzip.open(MEASUREMENTS, "rt", encoding="utf-8") as file:
        lines = [line for line in file if line[8 : line.index('"', 8)] in KEYS]
    for key in KEYS:
        for line in [x for x in lines if x.startswith(f'{{"key":"{key}"')][:20]:
            found = json.loads(line)
            plan = from_json(found["plan"])
            assert isinstance(plan, Plan)
            plans.append(plan)
            right = Measured("plan", plan, found["us"])
            wrong = Measured("wrong", plan, 0.001, passed=False)
            measurements.note(plan.ugraph.program, "h200", [right, wrong, Measured("eager")])
    return plans


def test_what_was_tuned_is_learned(cli, noted: list[Plan]):
    done = cli("calibrate", "--target", "h200")
    assert done.code == 0, done.err
    weights = measurements.ranker_of("h200")
    assert f"learned from {len(noted)} plans: {weights}" in done.out
    assert json.loads(weights.read_text())["command"] == "mirage-py calibrate --target h200"
    assert ranker_of("h200", weights) != ranker_of("h200")
    few = measurements.measurements_of("a100")
    few.write_text("\n".join(measurements.measurements_of("h200").read_text().splitlines()[:9]))
    refused = cli("calibrate", "--target", "a100")
    assert refused.code == 2
    assert "of 1 programs there are measurements on a100" in refused.err


def test_without_measurements_it_is_said(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))
    refused = cli("calibrate", "--target", "b200")
    assert refused.code == 2
    assert "of 0 programs" in refused.err
