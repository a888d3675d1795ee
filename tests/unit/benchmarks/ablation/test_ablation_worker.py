"""A worker of the ablation: which plans it takes, and how it asks the GPU about them."""

from __future__ import annotations

import gzip
import json
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from plans import attention_plan

from benchmarks.ablation import ablation_worker
from benchmarks.ablation.ablation_row import emitted_only
from benchmarks.suite import families
from mirage_py.errors import InputError
from mirage_py.runtime.base import stages
from mirage_py.runtime.numerical_check.check_pool import Trial
from mirage_py.runtime.timing.timing import Timed
from mirage_py.targets import target
from mirage_py.ugraph.text.json_form import to_json
from mirage_py.verify.numerical_check.numerical_check import FloatEvidence

KEY = "smoke_gqa-b1"
TRITON = attention_plan()
PLANS = [replace(attention_plan(tiles=(16, t)), backend="cuda") for t in (32, 64)]
EVIDENCE = FloatEvidence(1e-3, 1e-2, None, True)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every stage that is told."""
    found: list[str] = []
    monkeypatch.setattr(stages, "_LISTENERS", [found.append])
    return found


@pytest.fixture
def folder(tmp_path):
    found = tuple(families.Candidate(p, 1.0) for p in (TRITON, *PLANS))
    searched = families.Searched(TRITON.ugraph.program, found, 0.1, 0.1)
    families.write(searched, tmp_path / f"{KEY}.json")
    return tmp_path


def test_the_first_cuda_plans_of_a_search(folder):
    program, plans = ablation_worker.read_plans(folder, KEY, 1, None)
    assert program == TRITON.ugraph.program
    assert plans == (PLANS[0],)


def test_the_fastest_cuda_plans_of_a_run(folder, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    row = {"workload": "smoke_gqa", "batch": 1, "ours_us": 1.0, "digest": "t"}
    document = {"schema": 1, "rows": [row]}
    (run / "h200-suite.json").write_text(json.dumps(document))
    timed = (("t", 1.0, TRITON), ("b", 3.0, PLANS[0]), ("a", 2.0, PLANS[1]))
    with gzip.open(run / "measurements.jsonl.gz", "wt") as file:
        for digest, us, plan in timed:
            line = {"key": KEY, "digest": digest, "us": us, "passed": True, "plan": to_json(plan)}
            file.write(json.dumps(line) + "\n")
    _, plans = ablation_worker.read_plans(folder, KEY, 1, run)
    assert plans == (PLANS[1], PLANS[0])


def test_a_search_without_cuda_plans_is_refused(folder):
    searched = families.Searched(
        TRITON.ugraph.program, (families.Candidate(TRITON, 1.0),), 0.1, 0.1
    )
    families.write(searched, folder / f"{KEY}.json")
    with pytest.raises(InputError, match="no CUDA plan"):
        ablation_worker.read_plans(folder, KEY, 12, None)


class Check:
    """The second plan is the faster one."""

    store = "inputs"

    def __init__(self, program, *, seed, device):
        assert program == TRITON.ugraph.program
        assert (seed, device) == (0, 0)

    def first(self, plans, *, l2_bytes, reps):
        assert l2_bytes == target("h200").l2_bytes
        times = [Timed(us, us, us, reps) for us in range(len(plans), 0, -1)]
        return [Trial(EVIDENCE, t) for t in times]

    def remaining(self, plans):
        return [EVIDENCE] * len(plans)


def test_variants_are_timed_side_by_side(folder, monkeypatch, heard):
    ran = []

    def runner(plan):
        return lambda *inputs: ran.append((plan, inputs))

    def timed(entries, sets, *, reps):
        for entry in entries.values():
            entry(1)
        return {name: Timed(2.0, 1.0, 3.0, reps) for name in entries}

    pool = SimpleNamespace(compile=lambda plans, _capability: emitted_only(plans))
    monkeypatch.setattr(ablation_worker, "detect_target", lambda: target("h200"))
    monkeypatch.setattr(
        ablation_worker, "NumericalCheck", lambda *a, **k: nullcontext(Check(*a, **k))
    )
    monkeypatch.setattr(ablation_worker, "CompilePool", lambda _workers: nullcontext(pool))
    monkeypatch.setattr(ablation_worker, "PlanRunner", runner)
    monkeypatch.setattr(ablation_worker, "rotated_inputs", lambda *_: [("a",), ("b",)])
    monkeypatch.setattr(ablation_worker, "time_interleaved", timed)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    row = ablation_worker.measure(
        {
            "key": KEY,
            "plans": str(folder),
            "winners": None,
            "limit": 12,
            "compile_workers": 2,
        }
    )
    assert json.loads(json.dumps(row)) == row
    assert row["tried"] == 2
    assert ran[0] == (PLANS[1], ("b",))
    assert len(ran) == len(row["variants"])
    assert [line["slower"] for line in row["variants"]] == [1.0] * len(ran)
    assert heard[-1] == f"timing {len(ran)} variants"
