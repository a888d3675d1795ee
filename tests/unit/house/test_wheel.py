"""The wheel that a user gets holds every file of the package, byte for byte.

It is built from the sdist, as an index serves it: the links of this repository have already made a
build tool drop whole sections there without a word.
"""

from __future__ import annotations

import os
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


@pytest.fixture(scope="module")
def bundled_files(root: Path) -> dict[str, Path]:
    """What goes along with the package: the benchmark suite without its results, the examples."""
    found = [*(root / "benchmarks").rglob("*"), *(root / "examples").rglob("*")]
    names = {path.relative_to(root).as_posix(): path for path in found if path.is_file()}
    left_out = ("benchmarks/results/", "__pycache__")
    return {
        f"bundled/{name}": path
        for name, path in names.items()
        if not any(part in name for part in left_out)
    }


def test_wheel_holds_every_file(
    built: Path, package_files: dict[str, Path], bundled_files: dict[str, Path]
):
    files = package_files | bundled_files
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = [name for name in wheel.namelist() if ".dist-info/" not in name]
        assert sorted(names) == sorted(f"mirage_py/{name}" for name in files)
        for name, path in files.items():
            assert wheel.read(f"mirage_py/{name}") == path.read_bytes(), name


DECOY = "raise RuntimeError('the benchmarks of somebody else')"
BENCH = """
import sys
from mirage_py.cli.shell.run import run
code = run(["bench", "--compare", sys.argv[1], sys.argv[1]])
import benchmarks
print(benchmarks.__file__)
sys.exit(code)
"""


def test_bench_of_a_wheel_is_its_own(built: Path, root: Path, tmp_path: Path):
    installed = tmp_path / "site"
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        wheel.extractall(installed)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks/__init__.py").write_text(DECOY)
    done = subprocess.run(
        [sys.executable, "-c", BENCH, str(root / "benchmarks/results/h200-search.json")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )
    assert done.returncode == 0, done.stderr
    assert "1.000x" in done.stdout
    assert str(installed / "mirage_py/bundled/benchmarks") in done.stdout


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
