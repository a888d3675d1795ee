"""The wheel that a user gets holds every file of the package, byte for byte.

It is built from the sdist, as an index serves it: the links of this repository have already made a
build tool drop whole sections there without a word.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import mirage_py


@pytest.fixture(scope="module")
def built(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(root)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_wheel_holds_every_file(built: Path, package_files: dict[str, Path]):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = [name for name in wheel.namelist() if ".dist-info/" not in name]
        assert sorted(names) == sorted(f"mirage_py/{name}" for name in package_files)
        for name, path in package_files.items():
            assert wheel.read(f"mirage_py/{name}") == path.read_bytes(), name


def test_wheel_installs_the_command_and_the_version(built: Path):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        info = f"mirage_py-{mirage_py.__version__}.dist-info"
        assert b"mirage-py = mirage_py.cli:main" in wheel.read(f"{info}/entry_points.txt")
        assert "mirage_py/py.typed" in wheel.namelist()


def test_sdist_holds_the_sections_as_files(built: Path, package_files: dict[str, Path]):
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        members = {member.name.split("/", 1)[1]: member for member in sdist.getmembers()}
    for name in package_files:
        assert members[f"mirage_py/{name}"].isfile(), name
