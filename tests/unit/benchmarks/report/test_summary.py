"""The numbers that a run is judged by."""

from __future__ import annotations

import pytest
from unit.benchmarks.rows import row

from benchmarks.report.summary import BEST, BEST_SDPA, best_peer, floor_share, ratio, summary

ROWS = [
    row("a", 10.0, eager=30.0, compile=20.0, floor_us=9.0),
    row("b", 10.0, eager=9.0, compile=12.0, floor_us=5.0),
    row("c", 3.0, eager=12.0, sdpa_flash=4.5, sdpa_cudnn=4.0, bound_by="launch"),
]


def test_the_best_peer_is_the_fastest_right_one():
    assert [best_peer(r) for r in ROWS] == ["compile", "eager", "sdpa_cudnn"]
    wrong = row("w", 10.0, eager=30.0, compile=2.0, peers_wrong=["compile"])
    assert best_peer(wrong) == "eager"
    assert ratio(wrong, BEST) == 3.0
    assert ratio(wrong, "compile") is None
    assert summary([wrong])["wrong_peers"] == {"w-b1": ["compile"]}


def test_geometric_means():
    means = summary(ROWS)["geomean"]
    assert means[BEST]["cells"] == 3
    assert means[BEST]["ratio"] == pytest.approx((2.0 * 0.9 * 4 / 3) ** (1 / 3), abs=1e-3)
    assert means[BEST_SDPA] == {"cells": 1, "ratio": 1.333}
    assert means["compile"] == {"cells": 2, "ratio": pytest.approx(2.4**0.5, abs=1e-3)}


def test_fast_p_is_the_share_that_is_right_and_more_than_p_times_faster():
    fast = summary(ROWS)["fast_p"]
    assert fast["eager"] == {"0.8": 1.0, "1.0": 0.667, "1.5": 0.667, "2.0": 0.667}
    assert fast[BEST] == {"0.8": 1.0, "1.0": 0.667, "1.5": 0.333, "2.0": 0.0}


def test_rows_that_failed_are_cells_that_are_not_fast():
    found = summary(ROWS[:1], {"x-b1": "it hung"})
    assert found["cells"] == 2
    assert found["fast_p"]["eager"]["1.0"] == 0.5


def test_a_row_without_a_kernel_of_ours_is_a_loss():
    rows = [*ROWS, row("d", None, eager=1.0)]
    losses = summary(rows)["losses"]
    assert [(loss["key"], loss["ratio"]) for loss in losses] == [("d-b1", None), ("b-b1", 0.9)]
    assert summary(rows)["fast_p"]["eager"]["0.8"] == 0.75


def test_shares_of_the_floor_are_of_what_memory_bounds():
    assert floor_share(ROWS[0]) == 0.9
    assert summary(ROWS)["floor_share"] == {"a-b1": 0.9, "b-b1": 0.5}
    assert summary(ROWS)["launches"] == {"c-b1": 2.0}


def test_nothing_measured_is_nothing_lost():
    found = summary([row("a", None, eager=None)])
    assert found["losses"] == []
    assert found["geomean"][BEST] == {"cells": 0, "ratio": None}
    assert found["fast_p"]["eager"]["1.0"] is None
