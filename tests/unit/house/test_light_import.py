"""``import mirage_py`` costs nothing: the heavy modules wait until somebody uses them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "triton", "egglog", "cupy", "lark", "rich", "click")
MAX_MODULES = 100

PROBE = """
import json, sys
before = len(sys.modules)
import {module}
print(json.dumps([len(sys.modules) - before, [name for name in {heavy} if name in sys.modules]]))
"""


def probe(module: str) -> tuple[int, list[str]]:
    """Import ``module`` in a fresh process: how many modules, heavy ones loaded."""
    program = PROBE.format(module=module, heavy=HEAVY)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    modules, loaded = json.loads(done.stdout)
    return modules, loaded


@pytest.mark.parametrize("module", ["mirage_py", "mirage_py.settings", "mirage_py.errors"])
def test_loads_nothing_heavy(module: str):
    assert probe(module)[1] == []


def test_is_quick():
    # Modules of the standard library take half a millisecond each.
    assert 0 < probe("mirage_py")[0] < MAX_MODULES


SHADOW_PROBE = """
import types
import mirage_py
for name in ("axioms", "codegen", "search"):
    own = vars(mirage_py).get(name)
    assert own is None or isinstance(own, types.ModuleType), name
    assert name not in getattr(mirage_py, "__all__", ()), name
    module = __import__(f"mirage_py.{name}", fromlist=["_"])
    assert getattr(mirage_py, name) is module, name
"""


def test_no_name_of_the_package_hides_a_section():
    done = subprocess.run(
        [sys.executable, "-c", SHADOW_PROBE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
