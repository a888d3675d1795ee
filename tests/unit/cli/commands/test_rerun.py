"""``mirage-py rerun`` end to end on a machine without a GPU."""

from pathlib import Path

import pytest
from plans import rms_plan

from mirage_py.runtime.rerun import rerun as rerun_module
from mirage_py.runtime.store import seals
from mirage_py.runtime.store.saved import save_artifact


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(rerun_module, "gpu", lambda: None)
    plan = rms_plan()
    report = {"best": {"time_us": 12.5, "source": "model"}}
    save_artifact(tmp_path / "out", program=plan.ugraph.program, plan=plan, report=report)
    return tmp_path / "out"


def edited(folder: Path, old: str, new: str) -> str:
    (path,) = (folder / "kernels").iterdir()
    path.write_text(path.read_text().replace(old, new))
    return f"kernels/{path.name}"


def test_it_says_what_was_edited_and_what_came_of_it(cli, folder: Path):
    name = edited(folder, "tl.sum(", "3.0 * tl.sum(")
    outcome = cli("rerun", folder, "--budget", "0.001")
    assert outcome.code == 4
    assert outcome.out.startswith(f"edited     {name}: it is run as it lies there\n")
    assert "3.0 * tl.sum(" in outcome.out
    assert "wrong      random inputs: " in outcome.out
    assert "before     12.50 us predicted, when the artifact was made" in outcome.out


def test_nothing_edited_passes(cli, folder: Path):
    document = cli("rerun", folder, "--budget", "0.001", "--json").document
    assert document["passed"]
    assert document["edits"] == []
    assert document["float_sets"] == ["random"]
    assert document["max_rel_error"] <= document["float_bound"]


def test_kernels_from_elsewhere_wait_for_trust(cli, folder: Path, monkeypatch):
    edited(folder, "tl.sum(", "1.0 * tl.sum(")
    monkeypatch.setattr(seals, "_digest", lambda found: f"not {found.program.name}")
    outcome = cli("rerun", folder)
    assert outcome.code == 2
    assert "was not made here" in outcome.err
    assert "then --trust" in outcome.err
    assert cli("rerun", folder, "--trust", "--budget", "0.001").code == 0


def test_what_is_no_artifact_is_refused(cli, tmp_path: Path):
    outcome = cli("rerun", tmp_path / "nothing")
    assert outcome.code == 2
    assert "there is no such folder" in outcome.err
