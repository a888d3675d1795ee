from __future__ import annotations

from pathlib import Path

import pytest

from mirage_py.runtime.atomic import remove_folder, write_folder, write_text


def test_text_is_replaced_and_nothing_else_is_left(tmp_path: Path):
    write_text(tmp_path / "a" / "b.txt", "one\n")
    write_text(tmp_path / "a" / "b.txt", "two\r\n")
    assert (tmp_path / "a" / "b.txt").read_bytes() == b"two\r\n"
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b.txt"]


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path):
    write_folder(tmp_path / "x", {"old.txt": "1", "deep/down.txt": "2"})
    write_folder(tmp_path / "x", {"new.txt": "3"})
    assert [p.name for p in (tmp_path / "x").iterdir()] == ["new.txt"]
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_failed_write_leaves_the_old_folder(tmp_path: Path):
    write_folder(tmp_path / "x", {"old.txt": "1"})
    with pytest.raises(OSError, match="name too long"):
        write_folder(tmp_path / "x", {"n" * 300: "2"})
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x" / "old.txt").read_text() == "1"


def test_removing_a_link_leaves_what_it_points_to(tmp_path: Path):
    write_folder(tmp_path / "real", {"a.txt": "1"})
    (tmp_path / "link").symlink_to(tmp_path / "real")
    remove_folder(tmp_path / "link")
    assert [p.name for p in tmp_path.iterdir()] == ["real"]
    remove_folder(tmp_path / "gone")
