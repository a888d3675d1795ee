"""An artifact comes back as it was saved, and anything else is refused before it can run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from plans import rms_plan, scale_program, two_kernel_plan

from mirage_py.errors import FormatError
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.runtime.store import manifest
from mirage_py.runtime.store.artifact import load_artifact
from mirage_py.runtime.store.manifest import sha256
from mirage_py.runtime.store.saved import load, save_artifact

REPORT = {"schema": 1, "best": {"time_us": 12.5}, "note": "µ"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifact") / "out"
    plan = two_kernel_plan()
    save_artifact(folder, program=plan.ugraph.program, plan=plan, report=REPORT)
    return folder


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    shutil.copytree(saved, tmp_path / "copy")
    return tmp_path / "copy"


def seal(folder: Path) -> None:
    """Write the checksums of the files as they are now, as somebody who tampers well would."""
    document = json.loads((folder / manifest.NAME).read_text())
    for name in document["files"]:
        document["files"][name] = sha256((folder / name).read_text())
    (folder / manifest.NAME).write_text(json.dumps(document))


def test_comes_back_as_it_was(saved: Path):
    plan = two_kernel_plan()
    held = load_artifact(saved)
    assert held.plan == plan
    assert held.program == plan.ugraph.program
    assert held.report == REPORT
    assert held.folder == saved
    runner = load(saved)
    assert isinstance(runner, PlanRunner)
    assert runner.plan == plan


def test_is_all_text_and_written_in_one_piece(saved: Path):
    names = sorted(str(p.relative_to(saved)) for p in saved.rglob("*") if p.is_file())
    assert names == [
        "kernels/divide.py", "kernels/row_sums.py", "manifest.json", "plan.json", "program.json",
        "program.txt", "report.json", "ugraph.txt", "ugraph.ug.json",
    ]  # fmt: skip
    for name in names:
        (saved / name).read_text(encoding="utf-8")
    assert [p.name for p in saved.parent.iterdir()] == ["out"]


def test_the_original_program_is_an_artifact_too(tmp_path: Path):
    import torch

    program = scale_program(4, 6)
    save_artifact(tmp_path / "out", program=program, plan=None, report=REPORT)
    held = load_artifact(tmp_path / "out")
    assert held.plan is None
    assert held.program == program
    x = torch.randn(4, 6).half()
    want = (x.double() / x.double().square().sum(1, keepdim=True)).half()
    torch.testing.assert_close(held.runner()(x), want, rtol=4e-3, atol=1e-4)


def test_an_older_artifact_is_replaced_and_nothing_else(saved: Path, tmp_path: Path):
    plan = rms_plan()
    program = plan.ugraph.program
    out = tmp_path / "out"
    shutil.copytree(saved, out)
    save_artifact(out, program=program, plan=plan, report={})
    assert load_artifact(out).plan == plan
    (tmp_path / "empty").mkdir()
    save_artifact(tmp_path / "empty", program=program, plan=plan, report={})
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.txt").write_text("years of work")
    with pytest.raises(FormatError, match="not an artifact and will not be replaced"):
        save_artifact(tmp_path / "thesis", program=program, plan=plan, report={})
    assert (tmp_path / "thesis" / "chapter1.txt").read_text() == "years of work"


@pytest.mark.parametrize(
    "name",
    ["plan.json", "program.json", "program.txt", "kernels/divide.py", "ugraph.txt", "report.json"],
)
def test_an_altered_file_is_named(copy: Path, name: str):
    (copy / name).write_text((copy / name).read_text() + " ")
    with pytest.raises(FormatError, match="was altered") as raised:
        load_artifact(copy)
    assert str(copy / name) in str(raised.value)
    (copy / name).unlink()
    with pytest.raises(FormatError, match="is missing"):
        load_artifact(copy)


def test_an_altered_kernel_never_runs(copy: Path):
    """The checksum was mended too: the text is not the one that the plan gives."""
    mark = copy.parent / "ran"
    source = copy / "kernels" / "divide.py"
    source.write_text(f"open({str(mark)!r}, 'w')\n" + source.read_text())
    seal(copy)
    with pytest.raises(FormatError, match="does not fit the plan") as raised:
        load(copy)
    assert "divide.py" in str(raised.value)
    assert not mark.exists()


def test_another_version_is_named(copy: Path):
    source = copy / "kernels" / "divide.py"
    source.write_text(source.read_text().replace("num_warps=2", "num_warps=4"))
    seal(copy)
    document = json.loads((copy / manifest.NAME).read_text())
    (copy / manifest.NAME).write_text(json.dumps({**document, "mirage_py": "0.0.1"}))
    with pytest.raises(FormatError, match=r"the artifact was written by 0\.0\.1"):
        load_artifact(copy)


def test_an_altered_plan_must_fit_everything_else(copy: Path):
    plan = (copy / "plan.json").read_text()
    (copy / "plan.json").write_text(plan.replace('"num_warps": 2', '"num_warps": 8'))
    seal(copy)
    with pytest.raises(FormatError, match="does not fit the plan"):
        load_artifact(copy)


def test_a_plan_for_another_program_is_refused(copy: Path, tmp_path: Path):
    other = two_kernel_plan(b=32)
    save_artifact(tmp_path / "other", program=other.ugraph.program, plan=other, report={})
    shutil.copy(tmp_path / "other" / "plan.json", copy / "plan.json")
    seal(copy)
    with pytest.raises(FormatError, match="plan for another program"):
        load_artifact(copy)


def test_links_are_refused(copy: Path):
    target = copy.parent / "elsewhere.json"
    shutil.move(copy / "plan.json", target)
    (copy / "plan.json").symlink_to(target)
    with pytest.raises(FormatError, match="symbolic link"):
        load_artifact(copy)


def test_a_linked_folder_of_kernels_is_refused(copy: Path):
    shutil.move(copy / "kernels", copy.parent / "kernels")
    (copy / "kernels").symlink_to(copy.parent / "kernels")
    with pytest.raises(FormatError, match="symbolic link"):
        load_artifact(copy)


@pytest.mark.parametrize("name", ["../outside.txt", "/etc/hostname", "a//b", "./plan.json", ""])
def test_names_outside_are_refused(copy: Path, name: str):
    (copy.parent / "outside.txt").write_text("x")
    with pytest.raises(FormatError, match="not a name inside"):
        manifest.read_plain(copy, name)


def test_files_that_no_artifact_has_are_refused(copy: Path):
    document = json.loads((copy / manifest.NAME).read_text())
    document["files"]["kernels/extra.py"] = "0" * 64
    (copy / manifest.NAME).write_text(json.dumps(document))
    with pytest.raises(FormatError, match=r"no artifact has: kernels/extra\.py"):
        load_artifact(copy)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: text[:50],
        lambda text: "[]",
        lambda text: text.replace('"schema": 1', '"schema": 2'),
        lambda text: text.replace('"triton"', '"exe"'),
        lambda text: text.replace('"mirage_py": "', '"mirage": "'),
        lambda text: json.dumps({**json.loads(text), "files": ["plan.json"]}),
        lambda text: json.dumps({**json.loads(text), "files": {}}),
    ],
)
def test_a_broken_manifest_is_refused(copy: Path, change: Callable[[str], str]):
    path = copy / manifest.NAME
    path.write_text(change(path.read_text()))
    with pytest.raises(FormatError):
        load_artifact(copy)


@pytest.mark.parametrize("data", [b"\xff\xfe", b""])
def test_a_file_that_is_no_text_is_refused(copy: Path, data: bytes):
    (copy / "program.json").write_bytes(data)
    with pytest.raises(FormatError):
        load_artifact(copy)


def test_no_folder(tmp_path: Path):
    with pytest.raises(FormatError, match="no such folder"):
        load_artifact(tmp_path / "nothing")
