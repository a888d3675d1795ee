"""A killed search resumes from its journal; a damaged journal is refused."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz.campaign import SEARCH, digest_of, journal_search

from mirage_py.errors import InputError, MirageWarning
from mirage_py.search.enumerate import journal as journals
from mirage_py.search.enumerate.jobs import jobs_of
from mirage_py.search.enumerate.journal import Journal
from mirage_py.search.enumerate.search import search

TESTS = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def setting():
    return journal_search()


@pytest.fixture(scope="module")
def whole(setting, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    """A complete journal and what its search found."""
    path = tmp_path_factory.mktemp("journal") / "whole"
    found = search(setting.program, seed=setting.seed, limits=setting.limits, journal=path)
    return path.read_bytes(), digest_of(found)


def resumed(setting, path: Path) -> str:
    found = search(setting.program, seed=setting.seed, limits=setting.limits, journal=path)
    return digest_of(found)


def test_what_is_in_it_is_not_searched_again(setting, whole, tmp_path, monkeypatch):
    path = tmp_path / "j"
    path.write_bytes(whole[0])
    monkeypatch.setattr("mirage_py.search.enumerate.runners.run", None)
    assert resumed(setting, path) == whole[1]
    assert path.read_bytes() == whole[0]


@pytest.mark.parametrize("seed", range(12))
def test_it_goes_on_after_the_last_complete_line(setting, whole, tmp_path, seed: int):
    """Cut anywhere, as a kill does, or altered anywhere, as a disk may."""
    rng = random.Random(seed)
    content = bytearray(whole[0])
    at = rng.randrange(len(content.split(b"\n")[0]) + 1, len(content))
    if seed % 2:
        del content[at:]
    else:
        content[at] ^= 1 << rng.randrange(8)
    path = tmp_path / "j"
    path.write_bytes(content)
    book = Journal(path, setting)
    assert len(book.known) < len(list(jobs_of(setting)))
    # What counts is a beginning of the whole, line by line.
    assert whole[0].startswith(path.read_bytes())
    del book
    assert resumed(setting, path) == whole[1]


def test_lines_after_a_broken_one_do_not_count(setting, whole, tmp_path):
    first, second, *rest = whole[0].splitlines(keepends=True)
    path = tmp_path / "j"
    path.write_bytes(b"".join([first, second[:-9], b"\n", *rest]))
    assert Journal(path, setting).known == {}
    assert path.read_bytes() == first


@pytest.mark.parametrize("content", [b"my thesis\n", b"\0\n", b"{}\n", b"\xff\xfe\n"])
def test_what_is_no_journal_is_left_alone(setting, tmp_path, content: bytes):
    path = tmp_path / "j"
    path.write_bytes(content)
    with pytest.raises(InputError, match="of another search"):
        Journal(path, setting)
    assert path.read_bytes() == content


def test_a_line_that_fits_its_checksum_and_nothing_else(setting, whole, tmp_path):
    header = whole[0].splitlines(keepends=True)[0]
    for data in ({}, {"job": {}, "outcome": {}}, {"job": None, "outcome": 1}):
        text = json.dumps(data)
        path = tmp_path / "j"
        path.write_bytes(header + f"{journals._check(text)} {text}\n".encode())
        assert Journal(path, setting).known == {}
        assert path.read_bytes() == header


def test_two_searches_at_once(setting, tmp_path):
    book = Journal(tmp_path / "j", setting)
    with pytest.raises(InputError, match="another search is writing"):
        Journal(tmp_path / "j", setting)
    del book
    Journal(tmp_path / "j", setting)


def test_a_pipe_or_folder_is_no_journal(setting, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(InputError, match="no plain file"):
            Journal(tmp_path / name, setting)
    with pytest.raises(InputError, match="cannot be used"):
        Journal(Path("/proc/nothing/j"), setting)


def test_a_full_disk_ends_the_journal_and_not_the_search(setting, whole, tmp_path, monkeypatch):
    real, left = os.write, [len(whole[0]) * 2 // 3]

    def full(fd: int, data: memoryview) -> int:
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        part = data[: left[0]]
        left[0] -= len(part)
        return real(fd, part)

    path = tmp_path / "j"
    monkeypatch.setattr("mirage_py.search.enumerate.journal.os.write", full)
    with pytest.warns(MirageWarning, match="not kept any more: .*No space left") as warned:
        assert resumed(setting, path) == whole[1]
    assert len(warned) == 1
    monkeypatch.undo()
    assert Journal(path, setting).known
    assert resumed(setting, path) == whole[1]


# Ends in the middle of a line, the number of which it is given.
KILLED = """
import os, signal, sys
from mirage_py.search.enumerate import journal
write, left = os.write, int(sys.argv[2])
def half(fd, line):
    global left
    left -= 1
    if not left:
        write(fd, line[: len(line) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    return write(fd, line)
journal.os.write = half
"""


def test_a_search_that_is_killed_goes_on(whole, tmp_path):
    """Twice killed in the middle, then left alone: nothing is lost, and the result is the same."""
    path = tmp_path / "j"
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    lines = 0
    for number in (3, 2):
        command = [sys.executable, "-c", KILLED + SEARCH, str(path), str(number)]
        killed = subprocess.run(command, env=environment, capture_output=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        content = path.read_bytes()
        assert whole[0].startswith(content)
        assert not content.endswith(b"\n")
        assert content.count(b"\n") > lines
        lines = content.count(b"\n")
    command = [sys.executable, "-c", SEARCH, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == whole[1]
