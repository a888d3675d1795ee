from __future__ import annotations

from pathlib import Path

import pytest

from mirage_py.errors import InputError, SpecError
from mirage_py.frontend.spec import parse_file


def test_a_program_is_named_after_its_file(tmp_path: Path):
    path = tmp_path / "twice.math"
    path.write_text("N = ?\nX[N] : f16\nY[n] = 2 * X[n]", encoding="utf-8")
    program = parse_file(path, sizes={"N": 4})
    assert program.name == "twice"
    assert parse_file(str(path), {"N": 4}).digest == program.digest


def test_errors_name_the_file(tmp_path: Path):
    path = tmp_path / "bad.math"
    path.write_text("X[4] : f16\nY[n] = 2 * Z[n]", encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        parse_file(path)
    assert str(caught.value).startswith(f"{path}:2:12: unknown tensor 'Z'\n")


@pytest.mark.parametrize("kind", ["missing", "folder", "binary", "nul"])
def test_files_that_cannot_be_read(kind: str, tmp_path: Path):
    path = tmp_path / "x.math"
    if kind == "folder":
        path.mkdir()
    elif kind == "binary":
        path.write_bytes(b"\xff\xfe\x00")
    elif kind == "nul":
        path = Path("x\0.math")
    with pytest.raises(InputError) as caught:
        parse_file(path)
    assert caught.value.exit_code == 2
    assert caught.value.repair
