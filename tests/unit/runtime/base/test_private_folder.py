from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mirage_py.errors import MirageWarning
from mirage_py.runtime.base import private_folder as private
from mirage_py.runtime.base.private_folder import private_folder, scratch_folder, why_not_private


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(folder))
    private._warn.cache_clear()
    return folder


def test_a_new_folder_is_for_this_user_alone(cache: Path):
    folder = private_folder("on_cpu")
    assert folder == cache / "on_cpu"
    assert [p.stat().st_mode & 0o777 for p in (cache, folder)] == [0o700, 0o700]
    assert why_not_private(folder) == ""
    assert private_folder("on_cpu") == folder


@pytest.mark.parametrize("which", ["folder", "cache"])
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o722])
def test_what_others_may_write_to_is_not_used(cache: Path, which: str, mode: int):
    (cache / "on_cpu").mkdir(parents=True)
    (cache / "on_cpu" if which == "folder" else cache).chmod(mode)
    with pytest.warns(MirageWarning, match="others may write"):
        folder = private_folder("on_cpu")
    assert folder == scratch_folder() / "on_cpu"
    assert why_not_private(folder) == ""


def test_links_are_not_followed(cache: Path, tmp_path: Path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    cache.mkdir()
    (cache / "on_cpu").symlink_to(elsewhere)
    with pytest.warns(MirageWarning, match="link"):
        assert private_folder("on_cpu") == scratch_folder() / "on_cpu"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_folder_of_somebody_else_is_not_used(cache: Path):
    (cache / "on_cpu").mkdir(parents=True)
    os.chown(cache / "on_cpu", 12345, 12345)
    with pytest.warns(MirageWarning, match="somebody else"):
        assert private_folder("on_cpu") == scratch_folder() / "on_cpu"


def test_a_cache_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", "/proc/nowhere/cache")
    private._warn.cache_clear()
    with pytest.warns(MirageWarning, match="not cached"):
        folder = private_folder("cubins")
    (folder / "file").write_text("x")
    assert folder.parent == scratch_folder()


HOLDS = """
import sys, time
from mirage_py.runtime.base.private_folder import scratch_folder
print(scratch_folder(), flush=True)
time.sleep(float(sys.argv[1]))
"""


def test_what_killed_processes_leave_goes(tmp_path: Path):
    """And nothing that is in use."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    environment.pop("MIRAGE_PY_SCRATCH", None)

    def start(seconds: str) -> tuple[subprocess.Popen[str], Path]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDS, seconds],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        with process.stdout as said:
            return process, Path(said.readline().strip())

    killed, left = start("600")
    living, used = start("600")
    foreign = tmp_path / "mirage_py_1_notours"
    foreign.mkdir()
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert left.is_dir()
        ended, own = start("0")
        ended.wait()
        assert used.is_dir()
        assert foreign.is_dir()
        assert not left.exists()
        assert not own.exists()
    finally:
        living.kill()
        living.wait()


def test_processes_share_the_folder_of_the_first(tmp_path: Path):
    environment = {**os.environ, "MIRAGE_PY_SCRATCH": str(scratch_folder())}
    command = [sys.executable, "-c", HOLDS, "0"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == scratch_folder()
    assert scratch_folder().is_dir()
    # A folder that others may write to is no scratch folder, whoever names it.
    shared = tmp_path / "mirage_py_1_shared"
    shared.mkdir(mode=0o777)
    shared.chmod(0o777)
    environment["MIRAGE_PY_SCRATCH"] = str(shared)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) != shared


def test_planted_code_is_not_executed(cache: Path, tmp_path: Path):
    """Whoever can write to the cache names a file as the program would be named."""
    from cuda_kernels import doubling_plan

    from mirage_py.runtime.base.emission import emit_kernels
    from mirage_py.runtime.cpu.cpu_build import executable

    (kernel,) = (k for k in emit_kernels(doubling_plan()))
    name = executable(kernel).name
    planted = tmp_path / "planted"
    shared = cache / "on_cpu"
    for file in shared.iterdir():
        file.unlink()
    (shared / name).write_text(f"#!/bin/sh\ntouch {planted}\n")
    (shared / name).chmod(0o755)
    shared.chmod(0o777)
    with pytest.warns(MirageWarning, match="not cached"):
        program = executable(kernel)
    assert program.parent != shared
    assert "touch" not in program.read_bytes().decode("latin-1")[:200]
    assert not planted.exists()
