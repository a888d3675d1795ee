"""The graph benchmark without a GPU: a dry row, and the tables."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from benchmarks.graphs import command, processes
from benchmarks.graphs.blocks import Normed, draw_statistics
from benchmarks.graphs.dry_row import dry_row
from benchmarks.graphs.measured_row import CANDIDATES
from benchmarks.graphs.merged_row import merged_row
from benchmarks.graphs.table import dry_table, measured_table


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_dry_row_says_what_was_found_and_verified():
    row = dry_row("latent_attention", 1, effort="auto", budget_s=5.0, target_name="h200")
    assert row["after_us"] < row["before_us"]
    assert row["steps"]
    assert row["verified"]["equal"]
    assert row["verified"]["tested"] > 0
    assert "latent_attention" in dry_table([row])


def parts(**us: float) -> dict[str, dict]:
    """What candidates have measured, each beside eager."""
    return {n: {"times_us": {"eager": 9.0, n: time}, "error": 0.01} for n, time in us.items()}


ALL = {"max_autotune_freezing": 3.0, "max_autotune": 4.0, "ours": 6.0, "ours_freezing": 4.0}
ALL["ours_branches"] = 5.0


def test_losses_and_failures_are_shown():
    late = {"failure": "out of time", "seconds": {"search": 2.0}, "times_us": {"eager": 9.0}}
    rows = [merged_row("m", 1, parts(**ALL)), merged_row("n", 1, {"max_autotune": late})]
    text = measured_table(rows)
    assert "**0.75x**" in text
    assert "max_autotune_freezing: not begun; max_autotune: out of time (search 2.0 s)" in text
    assert "geometric mean 0.75x" in text
    assert rows[1]["times_us"] == {"eager": 9.0}


def test_what_no_substitution_makes_cheaper_is_as_the_peer():
    same = {"times_us": {"eager": 9.0}, "verdict": "left as it is"}
    ours = {n: same for n in ALL if n.startswith("ours")}
    row = merged_row("m", 1, {**parts(**ALL), **ours})
    assert row["times_us"]["ours"] == 4.0
    assert row["against_best"] == 1.0
    assert "failure" not in row


def test_what_was_not_measured_of_ours_is_named_and_does_not_hide_the_ratio():
    row = merged_row("m", 1, parts(**{n: us for n, us in ALL.items() if n != "ours_freezing"}))
    assert row["against_best"] == 0.6
    assert row["failure"] == "ours_freezing: not begun"
    without = merged_row("m", 1, parts(**{n: us for n, us in ALL.items() if "tune" not in n}))
    assert "against_best" not in without


def test_what_was_left_for_want_of_time_is_measured_again():
    part = {"times_us": {"eager": 9.0}, "verdict": "left as it is: no cheaper graph was found"}
    assert processes.is_whole(part)
    assert not processes.is_whole({**part, "failure": "out of time"})
    late = "left as it is: 15 of 96 parts were not tested"
    assert not processes.is_whole({**part, "verdict": late})


def test_statistics_of_norms_are_not_those_of_new_ones():
    block = draw_statistics(Normed(3, 4))
    assert not torch.equal(block[1].running_var, torch.ones(4))


def test_a_later_run_completes_the_rows_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []
    had: list[dict] = []

    def measured(keys, workers, seconds, done, known, candidates, **options):
        asked.extend(keys)
        had.append(known)
        for model, batch in keys:
            found = parts(**ALL)
            if model == "bert" and not known:
                found["max_autotune"] = {"failure": "out of time", "seconds": {}}
            done((model, batch), found)

    monkeypatch.setattr(command, "rows_in_processes", measured)
    path = tmp_path / "rows.json"
    given = ["--batch", "1", "-o", str(path), "--only", "bert"]
    for more in ([], ["--only", "nas_rnn"], ["--only", "nas_rnn"]):
        asked.clear()
        assert (
            CliRunner().invoke(command.main, [*given, *more], catch_exceptions=False).exit_code == 0
        )
        if more:
            assert all(n in had[1]["bert", 1] for n in ALL)
    assert asked == []
    rows = json.loads(path.read_text())["rows"]
    assert {row["model"] for row in rows} == {"bert", "nas_rnn"}
    assert all(row["commit"] and row["against_best"] == 0.75 for row in rows)
    assert all(part["commit"] for row in rows for part in row["candidates"].values())


def in_steps(key, name, folder, options):
    """In the place of a candidate: one breaks, one takes too long."""
    part = {"times_us": {"eager": 9.0}, "seconds": {"eager": 0.1}}
    if name == "max_autotune":
        part["after"] = (folder / "max_autotune_freezing.json").exists()
    (folder / f"{name}.json").write_text(json.dumps(part))
    if name == "ours_branches":
        os._exit(3)
    if name == "ours":
        time.sleep(60)
    part["times_us"][name] = 3.0
    (folder / f"{name}.json").write_text(json.dumps({**part, "is_whole": True}))


def test_candidates_end_one_by_one_and_say_what_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[dict] = []
    fork = multiprocessing.get_context("fork")
    monkeypatch.setattr(processes.multiprocessing, "get_context", lambda _kind: fork)
    monkeypatch.setattr(processes, "_measure_here", in_steps)
    monkeypatch.setattr(processes, "_POLL_S", 0.02)
    processes.rows_in_processes(
        [("m", 1), ("later", 1)],
        1,
        4.0,
        lambda key, parts: found.append({"key": key, **json.loads(json.dumps(parts))}),
        {},
        CANDIDATES,
        device="cpu",
    )
    assert found[-1] == {"key": ("later", 1)}
    last = found[-2]
    assert last["max_autotune_freezing"]["times_us"] == {"eager": 9.0, "max_autotune_freezing": 3.0}
    assert last["max_autotune"]["times_us"]["max_autotune"] == 3.0
    assert last["max_autotune"]["after"]
    assert last["ours_branches"]["failure"] == "ended with 3"
    assert last["ours"]["failure"] == "out of time"
    assert any("in_steps" in line for line in last["ours"]["where"])
    assert "ours_freezing" not in last
