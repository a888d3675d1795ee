"""A module that is imported at its first use."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from mirage_py.runtime.worker_main.deferred import defer

NAME = "a_package_for_test_deferred"


@pytest.fixture
def package(tmp_path: Path, monkeypatch):
    folder = tmp_path / NAME
    folder.mkdir()
    (folder / "__init__.py").write_text("import sys\nheld = sys.modules[__name__]\nnumber = 7\n")
    (folder / "part.py").write_text(f"from {NAME} import number\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield NAME
    for name in [n for n in sys.modules if n.partition(".")[0] == NAME]:
        del sys.modules[name]


def test_it_loads_when_it_is_asked(package):
    defer(package)
    module = importlib.import_module(package)
    # What inspect looks at in every module that there is.
    assert module.__file__ is not None
    assert "number" not in vars(module)
    assert module.number == 7
    assert module.held is module
    assert importlib.import_module(package) is module


def test_a_module_of_the_package_loads_it(package):
    defer(package)
    assert importlib.import_module(f"{package}.part").number == 7
    assert "number" in vars(sys.modules[package])


def test_what_is_loaded_stays(package):
    module = importlib.import_module(package)
    defer(package)
    assert sys.modules[package] is module
    assert "number" in vars(module)


def test_what_there_is_not_stays_so():
    defer("no_such_package_anywhere")
    assert "no_such_package_anywhere" not in sys.modules


def test_what_it_lacks_is_said(package):
    defer(package)
    with pytest.raises(AttributeError, match="letters"):
        _ = importlib.import_module(package).letters
