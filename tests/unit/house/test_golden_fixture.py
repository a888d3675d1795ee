from __future__ import annotations

from pathlib import Path

import pytest


def test_writes_then_compares(golden, tmp_path: Path):
    writer = type(golden)(tmp_path, update=True)
    reader = type(golden)(tmp_path, update=False)
    writer.check("a\nµ\n", "deep/name.txt")
    reader.check("a\nµ\n", "deep/name.txt")


def test_a_change_shows_a_diff_and_the_command(golden, tmp_path: Path):
    type(golden)(tmp_path, update=True).check("a\nb\n", "name.txt")
    with pytest.raises(pytest.fail.Exception) as caught:
        type(golden)(tmp_path, update=False).check("a\nc\n", "name.txt")
    message = str(caught.value)
    assert "-b" in message
    assert "+c" in message
    assert "make golden" in message


def test_a_missing_file_names_the_command(golden, tmp_path: Path):
    with pytest.raises(pytest.fail.Exception, match="make golden"):
        type(golden)(tmp_path, update=False).check("a", "name.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_difference_in_line_ends_is_a_difference(golden, tmp_path: Path):
    type(golden)(tmp_path, update=True).check("a\n", "name.txt")
    with pytest.raises(pytest.fail.Exception, match="line ends"):
        type(golden)(tmp_path, update=False).check("a", "name.txt")


def test_a_long_diff_is_cut(golden, tmp_path: Path):
    type(golden)(tmp_path, update=True).check("a\n" * 500, "name.txt")
    with pytest.raises(pytest.fail.Exception, match="more lines"):
        type(golden)(tmp_path, update=False).check("b\n" * 500, "name.txt")
