"""Two result files beside each other, on the command line too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from unit.benchmarks.rows import document, row

from benchmarks.report.compare import compare
from mirage_py.cli.shell.run import run

OLD = document(row("a", 10.0), row("b", 20.0), row("gone", 1.0), row("none", None))
NEW = document(row("a", 5.0), row("b", 20.9), row("new", 1.0), row("none", 3.0))
RESULTS = Path(__file__).resolve().parents[4] / "benchmarks/results"


def test_cells_of_both_files():
    found = compare(OLD, NEW)
    assert found.cells == (("a-b1", 10.0, 5.0), ("b-b1", 20.0, 20.9))
    assert (found.only_old, found.only_new) == (("gone-b1",), ("new-b1", "none-b1"))
    assert found.speedup == pytest.approx((2.0 * 20.0 / 20.9) ** 0.5)
    assert found.slower == ()
    assert compare(OLD, NEW, 0.04).slower == ("b-b1",)


def test_nothing_in_common():
    found = compare(document(row("a", 1.0)), document(row("b", 1.0)))
    assert found.speedup is None
    assert "no cell is in both files" in found.text()


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name, content in (("old.json", OLD), ("new.json", NEW)):
        (tmp_path / name).write_text(json.dumps(content))
    return [str(tmp_path / "old.json"), str(tmp_path / "new.json")]


def test_a_slower_cell_is_an_exit_code(files: list[str], capsys: pytest.CaptureFixture[str]):
    assert run(["bench", "--compare", *files]) == 0
    assert "geometric mean of 2 cells: 1.38" in capsys.readouterr().out
    assert run(["bench", "--compare", *files, "--tolerance", "0.04"]) == 1
    assert "0.96x  slower" in capsys.readouterr().out


def test_one_document(files: list[str], capsys: pytest.CaptureFixture[str]):
    assert run(["bench", "--compare", *files, "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert captured.err == ""
    assert found["cells"][0] == {"key": "a-b1", "old_us": 10.0, "new_us": 5.0, "speedup": 2.0}


def test_results_of_earlier_harnesses_compare(capsys: pytest.CaptureFixture[str]):
    names = [str(RESULTS / f"h200-{name}.json") for name in ("spine", "search")]
    assert run(["bench", "--compare", *names]) == 0
    assert "gqa-b1" in capsys.readouterr().out
