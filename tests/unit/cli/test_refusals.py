"""Malformed specs and unsupported functions: the exit code, the place and the repair."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from types import ModuleType

import pytest

DATA = Path(__file__).resolve().parents[2] / "data"
SPECS = sorted((DATA / "malformed_specs").glob("*.math"))
FUNCTIONS = DATA / "unsupported_functions.py"


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("unsupported_functions", FUNCTIONS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _lines() -> dict[str, int]:
    """The line that the error must name, for every function of the file."""
    lines: dict[str, int] = {}
    name = ""
    for number, text in enumerate(FUNCTIONS.read_text(encoding="utf-8").splitlines(), 1):
        if text.startswith("def "):
            name = text.removeprefix("def ").partition("(")[0]
        if text.endswith("# here"):
            lines[name] = number
    return lines


LINES = _lines()


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_malformed_spec(cli, path: Path):
    expected = dict(
        line.removeprefix("# ").split(": ", 1)
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith(("# error: ", "# says: ", "# repair: "))
    )
    outcome = cli("superoptimize", path)
    assert outcome.code == 2
    assert outcome.out == ""
    assert f"{path}:{expected['error']}: {expected['says']}" in outcome.err
    assert f"  try: {expected['repair']}" in outcome.err
    assert "^" in outcome.err


@pytest.mark.parametrize("name", sorted(LINES))
def test_an_unsupported_function(cli, name: str):
    module = _module()
    inputs = module.INPUTS.get(name, module.DEFAULT_INPUTS)
    options = [part for text in inputs for part in ("--input", text)]
    outcome = cli("superoptimize", f"{FUNCTIONS}:{name}", *options)
    assert outcome.code == 5
    assert outcome.out == ""
    assert f"error: {FUNCTIONS}:{LINES[name]}: " in outcome.err
    assert "\n  why: " in outcome.err
    assert "\n  try: " in outcome.err


def test_there_are_enough_of_both():
    functions = [n for n, f in vars(_module()).items() if inspect.isfunction(f)]
    assert sorted(functions) == sorted(LINES)
    assert len(SPECS) >= 20
    assert len(LINES) >= 10
