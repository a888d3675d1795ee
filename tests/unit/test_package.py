"""The package's own face: what it exports, and what each name costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import samples

import mirage_py
from mirage_py import errors
from mirage_py.runtime.store.saved import save_artifact
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan


def test_all_is_sorted_and_complete():
    assert mirage_py.__all__ == sorted(mirage_py.__all__)
    own_errors = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.MirageError)
    ]
    expected = {*own_errors, *mirage_py._HOMES, "__version__"}
    assert set(mirage_py.__all__) == expected


@pytest.mark.parametrize("name", mirage_py.__all__)
def test_every_name_is_there(name: str):
    assert name in dir(mirage_py)
    value = getattr(mirage_py, name)
    assert value is getattr(mirage_py, name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        mirage_py.nonsense  # noqa: B018


def test_names_of_the_package_are_found_by_star_import():
    scope: dict[str, object] = {}
    exec("from mirage_py import *", scope)
    assert scope["parse"] is mirage_py.parse


BLOCKED = """
import importlib.abc, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        blocked = ("egglog", "lark", "platformdirs", "IPython", "ipywidgets", "anywidget",
                   "black", "opentelemetry", "mirage_py.search", "mirage_py.axioms",
                   "mirage_py.frontend", "mirage_py.pipeline.pipeline", "click", "rich")
        if any(name == b or name.startswith(b + ".") for b in blocked):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocker())
import mirage_py
kernel = mirage_py.load(sys.argv[1])
assert kernel.plan is not None
assert callable(kernel)
# A kernel needs a GPU; a program that runs as it was does not.
import torch
x = torch.randn(7, 13)
assert torch.allclose(mirage_py.load(sys.argv[2])(x), torch.softmax(x, -1), atol=1e-6)
"""


def test_a_saved_result_loads_without_the_search(tmp_path: Path):
    ugraph = samples.ugraph("softmax")
    plan = Plan(ugraph, (LaunchConfig(num_stages=(2, 2)),))
    folders = [tmp_path / "kernel", tmp_path / "original program"]
    for folder, what in zip(folders, (plan, None), strict=True):
        save_artifact(folder, program=ugraph.program, plan=what, report={"schema": 1})
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, *folders],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
