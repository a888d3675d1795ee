"""Specs that are wrong, each with the place, the complaint and the repair in its first lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirage_py.errors import SpecError
from mirage_py.frontend.spec import parse_file

FOLDER = Path(__file__).parents[3] / "data" / "malformed_specs"
FILES = sorted(FOLDER.glob("*.math"))


def test_there_are_enough():
    assert len(FILES) >= 40


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_says_where_what_and_the_repair(path: Path):
    place, what, repair = [
        line.split(": ", maxsplit=1)[1] for line in path.read_text("utf-8").splitlines()[:3]
    ]
    with pytest.raises(SpecError) as caught:
        parse_file(path)
    error = caught.value
    assert error.exit_code == 2
    assert f"{error.position.line}:{error.position.column}" == place
    assert error.what == what
    assert error.repair == repair
    lines = str(error).splitlines()
    assert lines[0] == f"{path}:{place}: {what}"
    assert lines[1].endswith(error.position.source_line)
    # The caret stands under the first character of the place.
    assert lines[2].index("^") == lines[1].index("|") + 1 + error.position.column
    assert lines[-1] == f"  try: {repair}"
