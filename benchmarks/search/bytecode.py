"""Bytecode of the packages that a first call imports, where nothing has left any: installations
usually have it, and without it imports take four times as long, in every worker process too.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

# All else is compiled by the first process that imports it.
PACKAGES = ("torch", "triton", "sympy", "mpmath", "networkx", "numpy", "egglog", "mirage_py")
_TESTS = r"/(test|tests|idlelib|lib2to3|site-packages)/"


@contextmanager
def with_bytecode(packages: Sequence[str] = PACKAGES) -> Iterator[bool]:
    """In processes that start during the block imports find bytecode; whether it was made for
    that, as this process was told to write none.
    """
    if not sys.dont_write_bytecode:
        yield False
        return
    with tempfile.TemporaryDirectory() as folder:
        kept = {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        with patch.dict(os.environ, kept):
            _compile([sysconfig.get_path("stdlib")], "-x", _TESTS)
            _compile([place for name in packages for place in places(name)])
            yield True


def places(package: str) -> list[str]:
    """The folders of a package; none where it is not installed."""
    spec = importlib.util.find_spec(package)
    return list(spec.submodule_search_locations or ()) if spec is not None else []


def _compile(folders: Sequence[str], *options: str) -> None:
    # What does not compile is a template, or for another version: whoever imports it says so.
    there = [folder for folder in folders if Path(folder).is_dir()]
    subprocess.run(
        [sys.executable, "-m", "compileall", "-qq", "-j", "0", *options, *there], check=False
    )
