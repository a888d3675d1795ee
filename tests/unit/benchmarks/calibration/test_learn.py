"""The figures of the learned ranker, recomputed from what is committed."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from benchmarks.calibration import learn
from mirage_py.search.rank.plan_features import plan_features
from mirage_py.search.rank.ranker import Ranker
from mirage_py.targets import H200
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.text.json_form import from_json

# In the second run alone, in both, and of the folds that hold them out.
CHECKED = ("gemma12b_down-b1", "ntrans-b8")


@pytest.fixture(scope="module")
def committed() -> dict:
    return learn.committed()


def test_on_workloads_that_it_has_not_seen_it_ranks_as_is_said():
    found = learn.committed_rankings()
    assert len(found) == 98
    assert sum(r.plans for r in found) == 16_346
    assert np.mean([r.correlation for r in found]) >= 0.75
    first, fifth, tenth, fortieth = np.mean([r.regret for r in found], axis=0)
    assert first <= 1.07
    assert fifth <= 1.03
    assert tenth <= 1.015
    assert fortieth <= 1.005
    assert min(r.correlation for r in found) > 0.3


@pytest.mark.parametrize("key", CHECKED)
def test_the_committed_scores_are_those_of_a_ranker_that_has_not_seen_it(committed: dict, key: str):
    keys = sorted({name.split(" ")[0] for name in committed["scores"]})
    ranker = Ranker.read(committed["folds"][learn.fold_of(key, keys)])
    path = learn.RUNS[1]
    with gzip.open(path, "rt", encoding="utf-8") as file:
        plans = [from_json(json.loads(x)["plan"]) for x in file if x.startswith(f'{{"key":"{key}"')]
    features = [plan_features(p, H200) for p in plans if isinstance(p, Plan)]
    assert ranker.scores(features) == pytest.approx(committed["scores"][f"{key} 1"], abs=1e-4)


def test_folds_and_families_hold_out_every_workload_once(committed: dict):
    keys = sorted({name.split(" ")[0] for name in committed["scores"]})
    assert len(keys) == 64
    assert {learn.fold_of(k, keys) for k in keys} == {*range(5)}
    assert {learn.family_of(k) for k in keys} == {
        "attention", "gated mlp", "linear", "lora", "norm", "ntrans", "prefill",
    }  # fmt: skip


def test_winners_that_change_between_runs_are_counted():
    lines = [f'{{"key":"a","plan":{n}' for n in range(3)]
    runs = [dict(zip(lines, times, strict=True)) for times in ((1.0, 1.1, 2.0), (1.1, 1.0, 2.0))]
    assert learn.winner_flips(runs, least=3) == pytest.approx([0.1, 0.1])
    assert learn.winner_flips(runs[:1] * 2, least=3) == [0.0, 0.0]
    assert learn.winner_flips(runs) == []
    flips = learn.winner_flips([learn.committed_lines(path) for path in learn.RUNS])
    assert len(flips) == 60
    assert sum(loss > 0.05 for loss in flips) == 8
