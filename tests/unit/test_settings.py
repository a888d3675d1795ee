from __future__ import annotations

import os
from pathlib import Path

import pytest

from mirage_py.errors import InputError
from mirage_py.settings import Settings


def test_defaults():
    settings = Settings.from_env({})
    assert settings.cache_dir.name == "mirage-py"
    assert settings.dump_dir is None
    assert settings.workers == min(8, os.cpu_count() or 1)
    assert settings.compile_timeout_s == 120.0
    assert settings.no_cache is False


def test_every_variable_is_read(tmp_path: Path):
    settings = Settings.from_env(
        {
            "MIRAGE_PY_CACHE_DIR": str(tmp_path / "cache"),
            "MIRAGE_PY_DUMP": str(tmp_path / "dump"),
            "MIRAGE_PY_WORKERS": "3",
            "MIRAGE_PY_COMPILE_TIMEOUT": "2.5",
            "MIRAGE_PY_NO_CACHE": "Yes",
        }
    )
    assert settings == Settings(tmp_path / "cache", tmp_path / "dump", 3, 2.5, True)


def test_reads_the_environment_of_the_process(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MIRAGE_PY_WORKERS", "5")
    assert Settings.from_env().workers == 5


def test_empty_counts_as_unset():
    names = ("CACHE_DIR", "DUMP", "WORKERS", "COMPILE_TIMEOUT", "NO_CACHE")
    assert Settings.from_env({f"MIRAGE_PY_{name}": " " for name in names}) == Settings.from_env({})


def test_folders_are_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    # A worker process may start in another folder.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert Settings.from_env({"MIRAGE_PY_DUMP": "here"}).dump_dir == tmp_path / "here"
    cache_dir = Settings.from_env({"MIRAGE_PY_CACHE_DIR": "~/there"}).cache_dir
    assert cache_dir == tmp_path / "home" / "there"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MIRAGE_PY_WORKERS", "0"),
        ("MIRAGE_PY_WORKERS", "-2"),
        ("MIRAGE_PY_WORKERS", "2.5"),
        ("MIRAGE_PY_WORKERS", "many"),
        ("MIRAGE_PY_COMPILE_TIMEOUT", "0"),
        ("MIRAGE_PY_COMPILE_TIMEOUT", "-1"),
        ("MIRAGE_PY_COMPILE_TIMEOUT", "nan"),
        ("MIRAGE_PY_COMPILE_TIMEOUT", "inf"),
        ("MIRAGE_PY_COMPILE_TIMEOUT", "2m"),
        ("MIRAGE_PY_NO_CACHE", "maybe"),
        ("MIRAGE_PY_DUMP", __file__),
        ("MIRAGE_PY_CACHE_DIR", __file__),
    ],
)
def test_a_bad_value_names_the_variable_and_the_repair(name: str, value: str):
    with pytest.raises(InputError) as caught:
        Settings.from_env({name: value})
    assert caught.value.where == name
    assert value in caught.value.what
    assert caught.value.why
    assert name in caught.value.repair
