from __future__ import annotations

from pathlib import Path

import pytest

from mirage_py.errors import FormatError, InputError
from mirage_py.frontend.spec import parse_file
from mirage_py.ugraph.text import files
from mirage_py.ugraph.text.json_form import read_ugraph


def test_ends_of_lines_are_one(tmp_path: Path):
    (tmp_path / "a").write_bytes("µ\r\nb\rc\n".encode())
    assert files.read_text(tmp_path / "a") == "µ\nb\nc\n"


def test_what_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "MAX_BYTES", 1 << 16)
    with pytest.raises(InputError, match="File too large"):
        parse_file("/dev/zero")
    with pytest.raises(FormatError, match="File too large"):
        read_ugraph(Path("/dev/zero"))
