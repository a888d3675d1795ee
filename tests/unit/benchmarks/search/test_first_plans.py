"""The order in which effort quick compiles, held against what the suite measured."""

from __future__ import annotations

import pytest
from nightly import NIGHTLY

from benchmarks.calibration.calibrate import MEASUREMENTS, read
from benchmarks.search.first_plans import first_plans, row_of, shape_of


def test_the_order_of_grid_axes_is_no_other_shape():
    plans = first_plans("ntrans-b8")
    shapes = [shape_of(p) for p in plans]
    assert len(plans) > 16
    assert 16 < len(dict.fromkeys(shapes)) < len(plans)
    assert '"num_warps": 8' in shapes[0]


@pytest.mark.parametrize("name", ["ntrans-b8", "ntrans-b16"] if NIGHTLY else ["ntrans-b8"])
def test_the_suites_winner_is_among_the_first_plans(name):
    row = row_of(name, read(MEASUREMENTS, [name]), 16)
    assert row["place"] < 16
    assert row["slower"] < 0.05
