"""The reference page of launch options says what the class says."""

from __future__ import annotations

from benchmarks.pages.launch_options import PAGE, page
from mirage_py.ugraph.ir.launch_config import launch_options


def test_the_page_is_what_the_class_gives() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(), "run python -m benchmarks.pages.launch_options"


def test_every_option_has_a_row_that_says_all() -> None:
    rows = [line.split(" | ") for line in page().splitlines() if line.startswith("| `")]
    assert sorted(row[1].strip("`") for row in rows) == sorted(launch_options())
    assert all(cell.strip("| ") for row in rows for cell in row)
