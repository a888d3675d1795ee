"""Pictures and tables for people, from a result file."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from unit.benchmarks.rows import document, row

from benchmarks.report import plots, reports
from benchmarks.report.csv_form import csv_text
from mirage_py.cli.shell.run import run
from mirage_py.errors import InputError

ROWS = [
    row("gqa", 8.0, batch=1, eager=20.0, sdpa_flash=9.5, floor_us=4.0),
    row("gqa", 12.0, batch=8, eager=30.0, flex=1.0, peers_wrong=["flex"], floor_us=9.0),
    row("ntrans", 2.0, eager=3.0, flops=0.0, bound_by="launch", floor_us=1.1),
    row("none", None, eager=3.0),
]


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG\r\n")


def test_bars_and_roofline(tmp_path: Path):
    pytest.importorskip("matplotlib")
    paths = plots.write_plots(document(*ROWS), tmp_path, "h200-suite")
    assert [p.name for p in paths] == ["h200-suite-bars.png", "h200-suite-roofline.png"]
    assert all(is_png(p) for p in paths)


def test_nothing_measured_draws_nothing(tmp_path: Path):
    pytest.importorskip("matplotlib")
    assert plots.write_plots(document(ROWS[-1]), tmp_path, "smoke") == []


def test_an_older_result_file_has_bars_alone(tmp_path: Path):
    pytest.importorskip("matplotlib")
    old = document(row("gqa", 8.0, eager=20.0, moved_bytes=None))
    assert [p.name for p in plots.write_plots(old, tmp_path, "x")] == ["x-bars.png"]


def test_the_command_draws_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("matplotlib")
    path = tmp_path / "h200-suite.json"
    path.write_text(json.dumps(document(*ROWS)))
    assert run(["bench", "--plot", str(path)]) == 0
    assert all(is_png(Path(line)) for line in capsys.readouterr().out.split())


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plots, "are_possible", lambda: False)
    with pytest.raises(InputError, match=r"pip install -e '\.\[bench\]'"):
        plots.write_plots(document(*ROWS), tmp_path, "x")
    files, missing = reports.write_reports(document(*ROWS), tmp_path / "x-suite.json")
    assert [f.name for f in files] == ["x-suite.csv"]
    assert missing == reports.NO_PLOTS


def test_csv_has_a_column_for_each_peer():
    lines = list(csv.DictReader(csv_text(document(*ROWS)).splitlines()))
    assert [line["sdpa_flash_us"] for line in lines] == ["9.5", "", "", ""]
    assert (lines[0]["best_peer"], lines[0]["ratio_to_best_peer"]) == ("sdpa_flash", "1.188")
    assert (lines[1]["best_peer"], lines[1]["peers_wrong"]) == ("eager", "flex")
    assert (lines[3]["ours_us"], lines[3]["ratio_to_best_peer"]) == ("", "")


def test_every_peer_has_a_color_of_its_own():
    from benchmarks.peers.peers import PEER_NAMES

    assert len(PEER_NAMES) <= len(dict.fromkeys(plots._COLORS))
