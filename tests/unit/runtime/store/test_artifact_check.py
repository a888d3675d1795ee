"""An artifact from elsewhere is compared with its program before it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import samples

from mirage_py.errors import VerificationError
from mirage_py.frontend.cached_kernels import Pinned
from mirage_py.runtime.base.atomic import write_folder
from mirage_py.runtime.store.artifact import artifact_files, load_artifact
from mirage_py.runtime.store.artifact_check import checked
from mirage_py.runtime.store.plan_text import kernel_from
from mirage_py.runtime.store.saved import load, save_artifact
from mirage_py.runtime.store.seals import is_sealed
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.text.json_form import dump_text, load_text

NAMES = ("softmax", "rms_norm_matmul_two_loops", "attention")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


def plan_of(name: str) -> Plan:
    ugraph = samples.ugraph(name)
    return Plan(ugraph, tuple(LaunchConfig() for _ in ugraph.kernels))


def from_elsewhere(folder: Path, plan: Plan, report: Mapping[str, Any]) -> Path:
    """The folder as somebody else would write it: all checksums fit."""
    write_folder(folder, artifact_files(plan.ugraph.program, plan, report))
    return folder


def exchanged(plan: Plan, old: str, new: str) -> Plan:
    """A valid plan with another operator in its kernels; its own program stays."""
    document = json.loads(dump_text(plan))
    kernels = document["ugraph"]["kernels"]
    text = json.dumps(kernels)
    assert old in text
    document["ugraph"]["kernels"] = json.loads(text.replace(old, new, 1))
    found = load_text(json.dumps(document), "exchanged")
    assert isinstance(found, Plan)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_what_computes_its_program_loads_and_is_remembered(name: str, tmp_path: Path):
    folder = from_elsewhere(tmp_path / "a", plan_of(name), {"schema": 1})
    assert not is_sealed(load_artifact(folder))
    assert callable(load(folder))
    assert is_sealed(load_artifact(folder))


WRONG = (
    ("softmax", '"exp"', '"square"'),
    ("softmax", '"op": "div"', '"op": "mul"'),
    ("rms_norm_matmul_two_loops", '"op": "sqrt"', '"op": "square"'),
    ("attention", '"op": "mul"', '"op": "add"'),
)


@pytest.mark.parametrize(("name", "old", "new"), WRONG)
def test_another_function_is_refused(name: str, old: str, new: str, tmp_path: Path):
    report = {"schema": 1, "verification": {"proved": True}}
    folder = from_elsewhere(tmp_path / "a", exchanged(plan_of(name), old, new), report)
    for _ in range(2):
        with pytest.raises(VerificationError, match="do not pass for its program"):
            load(folder)
    assert not is_sealed(load_artifact(folder))
    assert callable(load(folder, check=False))
    assert not is_sealed(load_artifact(folder))


@pytest.mark.parametrize(("name", "old", "new"), WRONG)
def test_every_way_to_a_folder_refuses_it(name: str, old: str, new: str, tmp_path: Path):
    report = {"schema": 1, "verification": {"proved": True}}
    folder = from_elsewhere(tmp_path / "a", exchanged(plan_of(name), old, new), report)
    with pytest.raises(VerificationError, match="do not pass for its program"):
        kernel_from(folder)
    with pytest.raises(VerificationError, match="do not pass for its program"):
        Pinned().add(str(folder))
    assert not is_sealed(load_artifact(folder))
    assert callable(kernel_from(folder, check=False))


def test_a_right_folder_gives_a_kernel_and_is_remembered(tmp_path: Path):
    folder = from_elsewhere(tmp_path / "a", plan_of("softmax"), {"schema": 1})
    assert callable(kernel_from(folder))
    assert is_sealed(load_artifact(folder))


def test_the_seal_of_one_is_not_that_of_another(tmp_path: Path):
    plan = plan_of("softmax")
    save_artifact(tmp_path / "a", program=plan.ugraph.program, plan=plan, report={"schema": 1})
    wrong = from_elsewhere(tmp_path / "b", exchanged(plan, '"exp"', '"square"'), {"schema": 1})
    assert is_sealed(load_artifact(tmp_path / "a"))
    with pytest.raises(VerificationError):
        load(wrong)


def test_what_was_saved_here_is_not_compared_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def never(*_: object, **__: object) -> None:
        raise AssertionError("compared")

    plan = plan_of("softmax")
    save_artifact(tmp_path / "a", program=plan.ugraph.program, plan=plan, report={"schema": 1})
    monkeypatch.setattr("mirage_py.runtime.store.artifact_check.field_test", never)
    assert checked(load_artifact(tmp_path / "a")).plan == plan
    assert callable(load(tmp_path / "a"))
    folder = from_elsewhere(tmp_path / "b", plan, {"schema": 2})
    with pytest.raises(AssertionError, match="compared"):
        load(folder)
