"""The graph benchmark without a GPU: a dry row, and the tables."""

from __future__ import annotations

import pytest
import torch

from benchmarks.graphs.blocks import Normed, draw_statistics
from benchmarks.graphs.dry_row import dry_row
from benchmarks.graphs.table import dry_table, measured_table


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_dry_row_says_what_was_found_and_verified():
    row = dry_row("latent_attention", 1, effort="auto", budget_s=5.0, target_name="h200")
    assert row["after_us"] < row["before_us"]
    assert row["steps"]
    assert row["verified"]["equal"]
    assert row["verified"]["tested"] > 0
    assert "latent_attention" in dry_table([row])


def test_losses_and_failures_are_shown():
    times = {"eager": 9.0, "max_autotune": 4.0, "max_autotune_freezing": 3.0, "ours": 4.0}
    row = {"model": "m", "batch": 1, "times_us": times, "error": 0.01}
    text = measured_table([row, {"model": "n", "batch": 1, "failure": "RuntimeError: no"}])
    assert "**0.75x**" in text
    assert "RuntimeError: no" in text
    assert text.endswith("geometric mean 0.75x")


def test_statistics_of_norms_are_not_those_of_new_ones():
    block = draw_statistics(Normed(3, 4))
    assert not torch.equal(block[1].running_var, torch.ones(4))
