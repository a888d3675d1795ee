"""Bytecode that is made for measured calls."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from benchmarks.search import bytecode


def _package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (folder / "some_package").mkdir()
    (folder / "some_package/__init__.py").write_text("NAME = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(bytecode.sysconfig, "get_path", lambda _: str(folder / "none"))
    return "some_package"


def test_makes_it_where_none_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = _package(tmp_path, monkeypatch)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with bytecode.with_bytecode([name, "no_such_package"]) as made:
        assert made
        prefix = os.environ["PYTHONPYCACHEPREFIX"]
        assert os.environ["PYTHONDONTWRITEBYTECODE"] == ""
        monkeypatch.setattr(sys, "pycache_prefix", prefix)
        source = tmp_path / name / "__init__.py"
        assert Path(importlib.util.cache_from_source(str(source))).is_file()
    assert not Path(prefix).exists()
    assert os.environ.get("PYTHONPYCACHEPREFIX") != prefix


def test_leaves_all_as_it_is_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = _package(tmp_path, monkeypatch)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    before = os.environ.get("PYTHONPYCACHEPREFIX")
    with bytecode.with_bytecode([name]) as made:
        assert not made
        assert os.environ.get("PYTHONPYCACHEPREFIX") == before
