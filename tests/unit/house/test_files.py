"""The house itself: where files lie, what they are called and how long they are."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

# Above this a file holds more than one idea. The models we follow have medians of 97 to 345 lines.
MAX_LINES = 600
LINKS = ("axioms", "codegen", "search")


@pytest.fixture(scope="session")
def project_files(root: Path) -> list[str]:
    """Every file that git tracks or would track."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            capture_output=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    names = listed.stdout.decode().split("\0")
    return [name for name in names if name and (root / name).exists()]


@pytest.mark.parametrize("name", LINKS)
def test_top_sections_are_linked_into_the_package(root: Path, name: str):
    link = root / "mirage_py" / name
    assert link.is_symlink(), f"{link} must be a link: a checkout without symlinks cannot work"
    assert link.readlink() == Path("..") / name
    assert (root / name).is_dir()
    assert not (root / name).is_symlink()


def test_there_are_no_other_links(root: Path, project_files: list[str]):
    links = [name for name in project_files if (root / name).is_symlink()]
    assert sorted(links) == [f"mirage_py/{name}" for name in LINKS]


def test_no_artifact_is_committed(project_files: list[str]):
    # An artifact folder that a command left behind in the root was committed once.
    artifacts = [name for name in project_files if Path(name).name == "manifest.json"]
    kept = ("tests/", "benchmarks/results/")
    assert [name for name in artifacts if not name.startswith(kept)] == []


def test_no_file_is_called_utils(project_files: list[str]):
    vague = ("utils", "util", "helpers", "helper", "misc", "common")
    found = [name for name in project_files if Path(name).stem in vague]
    assert not found, f"name it after what it does: {found}"


def test_paths_are_plain(project_files: list[str]):
    # µ belongs in prose; in a path it breaks somebody's tool.
    assert [name for name in project_files if not name.isascii() or " " in name] == []


def test_files_hold_one_idea(root: Path, project_files: list[str]):
    written = [
        name
        for name in project_files
        if name.endswith((".py", ".lark", ".md")) and not name.startswith("tests/golden/")
    ]
    long = {name: (root / name).read_text(encoding="utf-8").count("\n") for name in written}
    assert {name: lines for name, lines in long.items() if lines > MAX_LINES} == {}


def test_modules_postpone_annotations(package_files: dict[str, Path]):
    missing = []
    for name, path in package_files.items():
        source = path.read_text(encoding="utf-8") if path.suffix == ".py" else ""
        defines = "\ndef " in source or "\nclass " in source
        if defines and "from __future__ import annotations" not in source:
            missing.append(name)
    assert missing == []


def test_every_folder_of_modules_is_a_package(package_files: dict[str, Path]):
    folders = sorted({path.parent for path in package_files.values() if path.suffix == ".py"})
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
