from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest

from mirage_py.errors import CompileError, MirageWarning
from mirage_py.runtime.base.modules import load_module, source_path
from mirage_py.runtime.base.private_folder import scratch_folder

SOURCE = "def answer():\n    return {value}\n"


def test_one_module_for_one_text():
    first = load_module(SOURCE.format(value=1), "answer")
    assert load_module(SOURCE.format(value=1), "answer") is first
    second = load_module(SOURCE.format(value=2), "answer")
    assert (first.answer(), second.answer()) == (1, 2)
    assert first.__name__ != second.__name__


def test_the_file_is_there_for_people():
    text = SOURCE.format(value=3)
    module = load_module(text, "answer")
    assert Path(module.__file__) == source_path(text, "answer")
    assert source_path(text, "answer").read_text() == text
    assert list(source_path(text, "answer").parent.iterdir()) == [source_path(text, "answer")]


def test_what_runs_is_the_text_and_not_the_file():
    text = SOURCE.format(value=4)
    module = load_module(text, "answer")
    source_path(text, "answer").write_text("altered = True\n")
    assert inspect.getsource(module.answer) == text
    del sys.modules[module.__name__]
    again = load_module(text, "answer")
    assert again.answer() == 4
    assert source_path(text, "answer").read_text() == text


def test_works_where_the_cache_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    # A file where a folder should be: refused even to root, unlike a read-only folder.
    (tmp_path / "sources").write_text("")
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))
    with pytest.warns(MirageWarning, match="sources cannot be written"):
        module = load_module(SOURCE.format(value=5), "answer")
    assert module.answer() == 5
    assert "return 5" in inspect.getsource(module.answer)
    assert Path(inspect.getfile(module.answer)).is_relative_to(scratch_folder())


@pytest.mark.parametrize("text", ["def (", "1 / 0\n"])
def test_a_text_that_does_not_load_is_named(text: str):
    with pytest.raises(CompileError, match="emitted source of broken does not load"):
        load_module(text, "broken")
    # The failure is not remembered as a success.
    with pytest.raises(CompileError):
        load_module(text, "broken")
