"""The graph benchmark without a GPU: a dry row, and the tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from benchmarks.graphs import command
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


def test_a_later_run_completes_the_rows_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []

    def measured(keys, workers, seconds, done, **options):
        asked.extend(keys)
        for model, batch in keys:
            times = {"eager": 9.0, "max_autotune": 4.0, "max_autotune_freezing": 3.0, "ours": 2.0}
            late = {"failure": "out of time"} if model == "bert" else {}
            done({"model": model, "batch": batch, "times_us": times, "error": 0.0, **late})

    monkeypatch.setattr(command, "rows_in_processes", measured)
    path = tmp_path / "rows.json"
    given = ["--batch", "1", "-o", str(path), "--only", "bert"]
    for more in ([], ["--only", "nas_rnn"], ["--only", "nas_rnn"]):
        asked.clear()
        assert CliRunner().invoke(command.main, [*given, *more]).exit_code == 0
    assert asked == [("bert", 1)]
    rows = json.loads(path.read_text())["rows"]
    assert {row["model"] for row in rows} == {"bert", "nas_rnn"}
    assert all(row["commit"] for row in rows)
