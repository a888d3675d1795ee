"""The learned ranker: trees, features, and the order of plans."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from families import safe_families
from unit.search import programs

from mirage_py.search.enumerate.search import search
from mirage_py.search.rank import ranker
from mirage_py.search.rank.instantiate import Instance, rank
from mirage_py.search.rank.plan_features import ROOFLINE, plan_features, with_others
from mirage_py.search.rank.ranker import Ranker, ranked_by_measurements, ranker_of
from mirage_py.targets import H100, H200

# Plans of CUDA take a tenth of the roofline's time, those of Triton ten times as long if they are
# of eight warps; a tree that is one leaf adds the same to all.
DOCUMENT = {
    "schema": 1,
    "command": "by hand",
    "names": ["cuda", "rel:k0:warps"],
    "trees": [
        {
            "feature": [0, 1],
            "threshold": [0.5, 0.0],
            "left": [1, -1],
            "right": [-3, -2],
            "value": [0.0, 2.25, -2.25],
        },
        {"feature": [], "threshold": [], "left": [], "right": [], "value": [7.0]},
    ],
}


@pytest.fixture(scope="module")
def instances() -> list[Instance]:
    families = safe_families(search(programs.row_softmax()).families).ugraphs
    return rank(families, H200, 24, "auto")


def test_trees_are_followed_to_their_leaves():
    found = Ranker.read(DOCUMENT)
    features = [
        {ROOFLINE: 1.0, "cuda": 1.0, "k0:warps": 4.0},
        {ROOFLINE: 2.0, "cuda": 0.0, "k0:warps": 4.0},
        {ROOFLINE: 3.0, "k0:warps": 8.0},
    ]
    assert found.scores(features).tolist() == [1.0 - 2.25 + 7.0, 2.0 + 7.0, 3.0 + 2.25 + 7.0]


def test_what_a_plan_lacks_is_zero_and_others_are_the_measure():
    rows = with_others([{"a": 3.0}, {"a": 5.0, "b": 1.0}, {"a": 9.0}], ("a", "rel:a", "b"))
    assert rows.tolist() == [[3.0, -2.0, 0.0], [5.0, 0.0, 1.0], [9.0, 4.0, 0.0]]


def test_features_are_those_of_the_plan(instances: list[Instance]):
    plans = {i.plan.backend: i for i in instances}
    for backend, instance in plans.items():
        found = plan_features(instance.plan, H200)
        assert found["cuda"] == (backend == "cuda")
        assert np.exp(found[ROOFLINE]) == pytest.approx(instance.estimate.time_us, rel=0.05)
        assert found["k0:warps"] in {o.num_warps for o in instance.plan.options}
        assert all(np.isfinite(value) for value in found.values())
    options = instances[0].plan.options
    early = replace(options[0], early_start=not options[0].early_start)
    changed = replace(instances[0].plan, options=(early, *options[1:]))
    one, other = (plan_features(p, H200) for p in (instances[0].plan, changed))
    assert {n for n in one.keys() | other.keys() if one.get(n) != other.get(n)} == {"early_start"}


def test_weights_of_this_machine_come_before_those_of_the_package(
    instances: list[Instance], tmp_path: Path
):
    learned = tmp_path / "h200.json"
    learned.write_text(json.dumps(DOCUMENT))
    found = ranked_by_measurements(instances, H200, learned)
    assert sorted(map(id, found)) == sorted(map(id, instances))
    assert found[0].plan.backend == "cuda"
    assert {i.plan.backend for i in found} == {"cuda", "triton"}
    assert found != ranked_by_measurements(instances, H200)


def test_what_is_in_doubt_comes_last(instances: list[Instance], tmp_path: Path):
    learned = tmp_path / "h200.json"
    learned.write_text(json.dumps(DOCUMENT))
    first = instances[0].family
    asked = [replace(i, doubt="far" if i.family == first else "") for i in instances]
    found = ranked_by_measurements(asked, H200, learned)
    assert 0 < sum(bool(i.doubt) for i in found) < len(found)
    assert found == sorted(found, key=lambda i: bool(i.doubt))


def test_what_either_order_has_first_is_early(instances: list[Instance], tmp_path: Path):
    """As for a program unlike all that was measured, whose fastest plans the ranker puts last."""
    learned = tmp_path / "h200.json"
    learned.write_text(json.dumps(DOCUMENT))
    found = ranked_by_measurements(instances, H200, learned)
    scores = Ranker.read(DOCUMENT).scores([plan_features(i.plan, H200) for i in instances])
    by_ranker = [instances[n] for n in np.argsort(scores, kind="stable")]
    triton_by_ranker = [n for n, i in enumerate(by_ranker) if i.plan.backend == "triton"]
    assert triton_by_ranker[0] > 6
    assert any(i.plan.backend == "triton" for i in instances[:3])
    predicted = np.round(np.log([i.estimate.time_us for i in instances]), 3)
    by_roofline = [instances[n] for n in np.lexsort((scores, predicted))]
    for order in (by_roofline, by_ranker):
        for place, instance in enumerate(order):
            assert found.index(instance) <= 3 * place + 2


def test_a_gpu_without_weights_has_the_order_of_the_roofline(instances: list[Instance]):
    assert ranker_of(H100.name) is None
    found = ranked_by_measurements(instances, H100)
    leaders = {(i.name, i.grid): i for i in reversed(instances)}
    assert found[0] is instances[0]
    assert [i for i in found if i is not leaders[i.name, i.grid]] == [
        i for i in instances if i is not leaders[i.name, i.grid]
    ]


def test_weights_of_another_version_are_refused(tmp_path: Path):
    path = tmp_path / "h200.json"
    path.write_text(json.dumps({**DOCUMENT, "schema": 0}))
    with pytest.raises(ValueError, match="no weights of this version"):
        ranker_of("h200", path)


def test_the_weights_of_the_package_say_what_made_them():
    document = json.loads((Path(ranker.__file__).parent / "h200_ranker.json").read_text())
    assert document["command"] == "python -m benchmarks.calibration.learn --train"
    assert len(document["trees"]) == 120


def test_of_plans_that_the_roofline_takes_for_equal_the_likely_ones_come_first(
    instances: list[Instance], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One model predicts both back ends: half of the first ten plans of a first call were Triton's,
    and none of them had compiled when the time was up.
    """
    learned = tmp_path / "h200.json"
    learned.write_text(json.dumps(DOCUMENT))
    turns: list[list[float]] = []
    monkeypatch.setattr(
        ranker,
        "in_turns",
        lambda given, _, roofline: turns.append([*roofline]) or range(len(given)),
    )
    equal = [replace(i, estimate=instances[0].estimate) for i in instances]
    ranked_by_measurements(equal, H200, learned)
    order = [equal[n].plan.backend for n in np.argsort(turns[0])]
    assert order == sorted(order)
    assert {*order} == {"cuda", "triton"}
