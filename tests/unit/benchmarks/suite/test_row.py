"""A row of the suite, with a tuner that says what the test wants."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from math import inf

import pytest
from plans import two_kernel_plan

from benchmarks.suite import row as row_module
from benchmarks.suite.families import Candidate, Searched, read, write
from benchmarks.suite.row import Setting, measure_row
from benchmarks.workloads.workload import Workload
from mirage_py.pipeline.selection.backends import for_cuda
from mirage_py.reasons import Code, reason
from mirage_py.runtime.compile.compiled_facts import CompiledFacts
from mirage_py.runtime.tune.measured import Measured, TuneReport
from mirage_py.targets import H200
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.text.json_form import from_json
from mirage_py.verify.numerical_check.numerical_check import FloatEvidence

PLAN = two_kernel_plan()
WORKLOAD = Workload("gqa", "attention", 8, {"H": 16})
SETTING = Setting(H200, "quick", 2, 1.5)
FACTS = CompiledFacts("k", 90, 1000, 32, 0, 5000, 0.1)


def numbered(number: int) -> Plan:
    """Plans that differ in one launch option."""
    first, second = PLAN.options
    return replace(PLAN, options=(replace(first, persistent_blocks=number), second))


def searched(count: int) -> Searched:
    kernels = ({"time_us": 3.0, "bound": "memory"},) * 2
    found = tuple(Candidate(numbered(n), 5.0 + n, kernels) for n in range(count))
    return Searched(PLAN.ugraph.program, found, 1.25, 0.5)


def plan(number: int, time_us: float, **more: object) -> Measured:
    found = Measured(f"plan {number}", numbered(number), time_us, 0.9 * time_us, 1.1 * time_us)
    return replace(found, max_rel_error=1e-4, bound=2e-3, facts=(FACTS,), **more)


def peer(name: str, time_us: float, **more: object) -> Measured:
    return replace(Measured(name, None, time_us, max_rel_error=2e-4, bound=2e-3), **more)


class Stage:
    """``tune`` of a test: it goes through the stages of the real one and gives a report."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, measured: Sequence[Measured]) -> None:
        self.measured = tuple(measured)
        monkeypatch.setattr(row_module, "tune", self)
        monkeypatch.setattr(row_module, "_forget_compiled", lambda: None)

    def __call__(
        self,
        program,
        plans,
        baselines,
        *,
        target,
        neighbours,
        climbing_rounds,
        compile_workers,
        progress,
    ):
        assert climbing_rounds == 2
        assert list(neighbours(plans[0])) if plans else True
        assert compile_workers == SETTING.compile_workers
        progress("compiled 1 of 2")
        progress("checking 2 candidates against float64, 3 replays")
        peers = [m for m in self.measured if m.plan is None]
        baseline = min(peers, key=lambda m: m.time_us)
        plans = [m for m in self.measured if m.timed and m.plan]
        best = min([*plans, baseline], key=lambda m: m.time_us)
        first_calls = dict.fromkeys(baselines, 1.5)
        return TuneReport(self.measured, best, baseline, ("a note",), first_calls=first_calls)

    def peers(self):
        return {m.name: lambda *_: None for m in self.measured if m.plan is None}

    def row(self):
        count = sum(m.plan is not None for m in self.measured)
        return measure_row(WORKLOAD, searched(count), self.peers(), SETTING)


def test_a_win(monkeypatch: pytest.MonkeyPatch):
    wrong = plan(
        2, inf, passed=False, reason=reason(Code.NOT_RUN, "Y[0] = 1 instead of 2\nand more")
    )
    stage = Stage(
        monkeypatch,
        [plan(0, 12.0), plan(1, 8.0), wrong, peer("eager", 20.0), peer("sdpa_flash", 9.0)],
    )
    row, lines = stage.row()
    assert (row["workload"], row["batch"], row["backend"]) == ("gqa", 8, "triton")
    assert (row["ours_us"], row["result"], row["result_us"]) == (8.0, "ours", 8.0)
    assert row["peers_us"] == {"eager": 20.0, "sdpa_flash": 9.0}
    assert (row["search_s"], row["verify_s"]) == (1.25, 0.5)
    assert list(row["peers_compile_s"]) == ["eager", "sdpa_flash"]
    assert (row["triton_us"], row["cuda_us"]) == (8.0, None)
    assert row["plan"][0]["flags"] == {"blocks": "1"}
    assert row["resources"][0]["registers"] == 32
    assert row["dropped"] == {"Y[0] = 1 instead of 2": 1}
    assert (row["candidates"], row["timed"]) == (3, 2)
    assert (row["max_rel_error"], row["eager_rel_error"]) == (1e-4, 2e-4)
    assert row["launch_us"] == 1.5
    assert [stage[:8] for _, stage in row["stages"]] == ["checking"]
    assert json.loads(json.dumps(row, allow_nan=False)) == row

    assert [(line["n"], line["us"]) for line in lines] == [(0, 12.0), (1, 8.0), (2, None)]
    assert [line["predicted_us"] for line in lines] == [5.0, 6.0, 7.0]
    assert [line["passed"] for line in lines] == [True, True, False]
    assert lines[1]["digest"] == row["digest"] != lines[0]["digest"]
    assert lines[0]["kernels"] == [{"time_us": 3.0, "bound": "memory"}] * 2
    assert from_json(json.loads(json.dumps(lines[1]["plan"], allow_nan=False))) == numbered(1)


def test_the_best_of_each_back_end(monkeypatch: pytest.MonkeyPatch):
    cuda = [replace(plan(n, t), plan=for_cuda(numbered(n), H200)) for n, t in ((2, 7.0), (3, 9.0))]
    row, _ = Stage(monkeypatch, [plan(0, 12.0), plan(1, 8.0), *cuda, peer("eager", 20.0)]).row()
    assert (row["backend"], row["ours_us"]) == ("cuda", 7.0)
    assert (row["triton_us"], row["cuda_us"]) == (8.0, 7.0)


def test_the_result_is_what_a_user_would_get(monkeypatch: pytest.MonkeyPatch):
    # No optimisation compares with a library that its user did not name.
    monkeypatch.setattr(row_module, "NumericalCheck", check_of({}))
    stage = Stage(
        monkeypatch,
        [plan(0, 12.0), peer("eager", 20.0), peer("compile", 11.0), peer("sdpa_flash", 9.0)],
    )
    row, _ = stage.row()
    assert (row["ours_us"], row["result"], row["result_us"]) == (12.0, "compile", 11.0)


def test_half_a_percent_is_no_win_for_a_user(monkeypatch: pytest.MonkeyPatch):
    row, _ = Stage(monkeypatch, [plan(0, 9.95), peer("eager", 10.0)]).row()
    assert (row["ours_us"], row["result"]) == (9.95, "eager")


def test_a_peer_that_is_wrong_is_marked(monkeypatch: pytest.MonkeyPatch):
    stage = Stage(
        monkeypatch,
        [
            plan(0, 5.0),
            peer("eager", 20.0),
            peer("flex", 9.0, max_rel_error=0.5),
            peer("sdpa_flash", inf, passed=False, reason=reason(Code.NOT_TIMED, "no such\nlayout")),
        ],
    )
    row, _ = stage.row()
    assert row["peers_wrong"] == ["flex"]
    assert row["peers"]["flex"]["agrees"] is False
    assert row["peers"]["sdpa_flash"] == {
        "us": None, "error": None, "agrees": None, "reason": "it does not run: no such",
    }  # fmt: skip


def check_of(verdicts: dict[int, bool]):
    """A check that knows which plans are right on the inputs of finalists."""

    class Check:
        def __init__(self, program, *, seed, device) -> None:
            pass

        def __enter__(self):
            return self

        def __exit__(self, *error) -> None:
            pass

        def remaining(self, plans):
            numbers = [p.options[0].persistent_blocks for p in plans]
            return [FloatEvidence(0.1, 1.0, None, verdicts.get(n, True)) for n in numbers]

    return Check


def test_behind_a_peer_ours_is_the_fastest_that_is_right_on_every_input(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(row_module, "NumericalCheck", check_of({1: False}))
    stage = Stage(monkeypatch, [plan(0, 12.0), plan(1, 11.0), plan(2, 13.0), peer("eager", 10.0)])
    row, _ = stage.row()
    assert (row["ours_us"], row["result"]) == (12.0, "eager")


def test_no_plan_at_all(monkeypatch: pytest.MonkeyPatch):
    row, lines = Stage(monkeypatch, [peer("eager", 10.0)]).row()
    assert (row["ours_us"], row["result"], row["timed"], lines) == (None, "eager", 0, [])
    assert row["max_rel_error"] is None


def test_searches_are_read_back(tmp_path):
    path = tmp_path / "gqa-b8.json"
    write(searched(3), path)
    assert read(path) == searched(3)
    assert read(path, 2) == searched(2)
    document = json.loads(path.read_text())
    del document["kernels"]  # an older file
    path.write_text(json.dumps(document))
    assert [c.kernels for c in read(path).candidates] == [(), (), ()]
