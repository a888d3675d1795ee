"""Edited artifacts: what was edited is said, the text on disk is what runs, and it is judged."""

import json
import shutil
from pathlib import Path

import pytest
from cuda_kernels import doubling_plan, emitting
from plans import rms_plan, scale_program, two_kernel_plan

from mirage_py.errors import FormatError, InputError
from mirage_py.reasons import Code
from mirage_py.runtime.base.emission import KernelFile
from mirage_py.runtime.rerun import rerun as rerun_module
from mirage_py.runtime.rerun.edited import EditedArtifact, read_edited
from mirage_py.runtime.rerun.rerun import rerun
from mirage_py.runtime.store.artifact import load_artifact
from mirage_py.runtime.store.saved import save_artifact


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rerun") / "rms.mirage"
    plan = rms_plan()
    report = {"best": {"time_us": 12.5, "source": "model"}}
    save_artifact(folder, program=plan.ugraph.program, plan=plan, report=report)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "rms.mirage"))


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rerun_module, "gpu", lambda: None)


def edit(folder: Path, name: str, old: str, new: str) -> EditedArtifact:
    path = folder / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return read_edited(folder)


def kernel_name(folder: Path) -> str:
    (path,) = (folder / "kernels").iterdir()
    return f"kernels/{path.name}"


def test_an_artifact_as_it_was_written_passes(folder: Path):
    held = read_edited(folder)
    assert held.edits == ()
    assert all(isinstance(step, KernelFile) for step in held.steps)
    found = rerun(held, budget_s=0.0)
    assert found.evidence.passed
    assert [s.name for s in found.evidence.sets] == ["random"]
    assert found.times == {}
    assert any("not run within 0 s: large" in note for note in found.notes)


def test_the_text_on_disk_is_what_runs(folder: Path):
    name = kernel_name(folder)
    held = edit(folder, name, "tl.sum(", "3.0 * tl.sum(")
    (change,) = held.edits
    assert change.file == name
    old, new = (line for line in change.changes if line[0] in "+-")
    assert new == "+" + old[1:].replace("tl.sum(", "3.0 * tl.sum(")
    found = rerun(held, budget_s=0.0)
    assert not found.evidence.passed
    assert found.evidence.reason is not None
    assert found.evidence.reason.code in (Code.TOO_FAR, Code.NOT_FINITE)
    with pytest.raises(FormatError, match="was altered"):
        load_artifact(folder)


def test_a_harmless_edit_passes(folder: Path):
    name = kernel_name(folder)
    held = edit(folder, name, "num_warps=", "num_stages=1, num_warps=")
    assert len(held.edits[0].changes) == 3
    assert rerun(held, budget_s=0.0).evidence.passed


def test_a_kernel_that_does_not_start_says_why(folder: Path):
    held = edit(folder, kernel_name(folder), "@triton.jit", "@triton.jit\n)")
    found = rerun(held, budget_s=0.0)
    assert not found.evidence.passed
    assert "SyntaxError" in str(found.evidence.reason)


def test_only_what_was_made_here_is_executed_unasked(folder: Path):
    name = kernel_name(folder)
    assert not read_edited(folder).runs_foreign_text
    assert not edit(folder, name, "num_warps=", "num_stages=1, num_warps=").runs_foreign_text
    held = edit(folder, "report.json", "12.5", "1.5")
    assert held.runs_foreign_text
    assert [e.file for e in held.edits] == [name, "report.json"]


def test_an_edited_plan_emits_what_was_not_edited(folder: Path):
    plan = json.loads((folder / "plan.json").read_text())
    text = json.dumps(plan).replace('"num_warps": 4', '"num_warps": 2')
    assert text != json.dumps(plan)
    (folder / "plan.json").write_text(text)
    held = read_edited(folder)
    assert [(e.file, e.use) for e in held.edits] == [
        ("plan.json", "kernels that were not edited are emitted from it again")
    ]
    (step,) = held.steps
    assert isinstance(step, KernelFile)
    assert "num_warps=2" in step.source
    assert not held.runs_foreign_text


def test_files_for_reading_are_no_matter(folder: Path):
    held = edit(folder, "program.txt", "program", "# mine\nprogram")
    assert [e.use for e in held.edits] == ["it is for reading alone: nothing is taken from it"]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("plan.json", "{", "plan.json"),
        ("program.json", "{}", "program.json"),
        ("report.json", "[]", "is not a report"),
        ("manifest.json", "{}", "is not a manifest"),
    ],
)
def test_broken_files_are_named(folder: Path, name: str, text: str, says: str):
    (folder / name).write_text(text)
    with pytest.raises(FormatError, match=says):
        read_edited(folder)


def test_a_missing_kernel_is_named(folder: Path):
    (folder / kernel_name(folder)).unlink()
    with pytest.raises(FormatError, match="is missing"):
        read_edited(folder)


def test_the_original_program_has_no_kernels(tmp_path: Path):
    save_artifact(tmp_path / "out", program=scale_program(), plan=None, report={})
    with pytest.raises(FormatError, match="has no kernels to run again"):
        read_edited(tmp_path / "out")


def test_too_much_for_a_cpu_is_said_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rerun_module, "_MOST_STEPS", 1)
    with pytest.raises(InputError, match="too large to run on a CPU") as error:
        rerun(read_edited(folder))
    assert "--size" in error.value.repair


def test_several_kernels_run_one_after_the_other(tmp_path: Path):
    plan = two_kernel_plan()
    save_artifact(tmp_path / "out", program=plan.ugraph.program, plan=plan, report={})
    held = read_edited(tmp_path / "out")
    assert len([s for s in held.steps if isinstance(s, KernelFile)]) == 2
    assert rerun(held, budget_s=0.0).evidence.passed


def test_an_edited_cuda_kernel_keeps_its_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    emitting(monkeypatch, lambda _: "before\nbody")
    plan = doubling_plan()
    save_artifact(tmp_path / "out", program=plan.ugraph.program, plan=plan, report={})
    (path,) = (tmp_path / "out" / "kernels").iterdir()
    path.write_text("before\nother")
    (step,) = read_edited(tmp_path / "out").steps
    assert step.source == "before\nother"  # type: ignore[union-attr]
