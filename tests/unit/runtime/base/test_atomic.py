from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from fuzz.campaign import kill_writers

from mirage_py.runtime.base import atomic
from mirage_py.runtime.base.atomic import remove_debris, remove_folder, write_folder, write_text


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


def test_somebody_who_looks_always_finds_a_folder(tmp_path: Path):
    """A folder is exchanged for another one: there is no moment without one."""
    write_folder(tmp_path / "x", {"a.txt": "1"})
    write_folder(tmp_path / "y", {"a.txt": "1"})
    if not atomic._exchange(tmp_path / "x", tmp_path / "y"):
        pytest.skip("this file system exchanges no names")
    done, missing = threading.Event(), []

    def look() -> None:
        while not done.is_set():
            missing.extend([1] * (not (tmp_path / "x").exists()))

    thread = threading.Thread(target=look)
    thread.start()
    for number in range(200):
        write_folder(tmp_path / "x", {"a.txt": str(number)})
    done.set()
    thread.join()
    assert not missing
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x", "y"]


def test_without_an_exchange_it_is_replaced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(atomic, "_exchange", lambda *_: False)
    test_a_folder_is_replaced_as_a_whole(tmp_path)


def test_debris_goes_and_nothing_else(tmp_path: Path):
    for name in (".x.abcd1234", ".removed.abcd_123", ".git", "x", ".hidden.folder"):
        (tmp_path / name).mkdir()
    (tmp_path / ".y.abcd1234").write_text("a file")
    remove_debris(tmp_path)
    left = sorted(p.name for p in tmp_path.iterdir())
    assert left == [".git", ".hidden.folder", ".y.abcd1234", "x"]


def test_writers_that_are_killed_break_nothing(tmp_path: Path):
    """A cache and an artifact; `make faults` does it more often."""
    counts = kill_writers(4, tmp_path, random.Random(3))
    assert counts.kills == 4
    assert (counts.lost, counts.broken, counts.different) == (0, 0, 0)
