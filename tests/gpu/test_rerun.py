"""Edited kernels on a GPU: checked on every set of inputs, and timed beside those of the plan."""

from pathlib import Path

import pytest
from plans import rms_plan

from mirage_py.runtime.rerun.edited import read_edited
from mirage_py.runtime.rerun.rerun import EDITED, STORED, rerun
from mirage_py.runtime.store.saved import save_artifact

pytestmark = pytest.mark.gpu


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    plan = rms_plan()
    save_artifact(tmp_path / "out", program=plan.ugraph.program, plan=plan, report={})
    return tmp_path / "out"


def edited(folder: Path, old: str, new: str) -> None:
    (path,) = (folder / "kernels").iterdir()
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_an_edited_kernel_is_timed_beside_the_stored_one(folder: Path):
    edited(folder, "num_warps=4", "num_warps=8")
    found = rerun(read_edited(folder))
    assert found.evidence.passed
    assert list(found.times) == [EDITED, STORED]
    assert all(0.0 < time_us < 1e4 for time_us in found.times.values())


def test_a_wrong_kernel_is_not_timed(folder: Path):
    edited(folder, "tl.sum(", "3.0 * tl.sum(")
    found = rerun(read_edited(folder))
    assert not found.evidence.passed
    assert found.times == {}
