"""Artifacts of CUDA kernels: sources that nvcc compiles, compared with the plan as others are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_kernels import PLAIN, doubling_plan, emitting

from mirage_py.errors import FormatError
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.runtime.store import cache
from mirage_py.runtime.store.artifact import load_artifact
from mirage_py.runtime.store.cache import cache_key
from mirage_py.runtime.store.manifest import NAME, sha256
from mirage_py.runtime.store.saved import save_artifact

PLAN = doubling_plan()


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    emitting(monkeypatch, lambda _: "plain")
    folder = tmp_path / "out"
    save_artifact(folder, program=PLAN.ugraph.program, plan=PLAN, report={"a": 1})
    return folder


def changed(folder: Path, name: str, text: str) -> None:
    """Another text of a file, with the checksum that goes with it."""
    document = json.loads((folder / NAME).read_text())
    (folder / name).write_text(text)
    document["files"][name] = sha256(text)
    (folder / NAME).write_text(json.dumps(document))


def test_comes_back_as_it_was(saved: Path):
    assert (saved / "kernels" / "doubling.cu").read_text() == PLAIN
    assert not list(saved.glob("kernels/*.py"))
    held = load_artifact(saved)
    assert held.plan == PLAN
    assert isinstance(held.runner(), PlanRunner)


def test_the_manifest_says_how_to_compile_a_kernel(saved: Path):
    document = json.loads((saved / NAME).read_text())
    assert document["kind"] == "cuda"
    assert document["compile"].startswith("nvcc -std=c++17 -arch=sm_90a -cubin kernels/NAME.cu")


def test_another_source_is_refused(saved: Path):
    changed(saved, "kernels/doubling.cu", PLAIN.replace("+ X[i]", "+ 1"))
    with pytest.raises(FormatError, match=r"doubling\.cu: does not fit the plan"):
        load_artifact(saved)


def test_a_plan_of_another_back_end_than_the_manifest_s_is_refused(saved: Path):
    text = (saved / "plan.json").read_text()
    changed(saved, "plan.json", re.sub(r'("backend":\s*)"cuda"', r'\1"triton"', text))
    with pytest.raises(FormatError, match="is a plan for the back end triton"):
        load_artifact(saved)


def test_a_plan_that_the_emitter_does_not_take_is_refused(
    saved: Path, monkeypatch: pytest.MonkeyPatch
):
    def fails(_):
        raise ZeroDivisionError

    emitting(monkeypatch, fails)
    with pytest.raises(FormatError, match="is no plan that a search could give"):
        load_artifact(saved)


def test_the_key_knows_the_compiler_where_it_matters(monkeypatch: pytest.MonkeyPatch):
    def key(backend: str, compiler: str) -> str:
        monkeypatch.setattr(cache, "_cuda_compiler", lambda: compiler)
        return cache_key(PLAN.ugraph.program, "h200", backend)

    assert key("triton", "cupy 14") == key("triton", "none")
    assert key("auto", "cupy 14") != key("auto", "none")
    assert len({key(b, "nvcc") for b in ("triton", "cuda", "auto")}) == 3


def test_loading_needs_no_triton(saved: Path):
    program = (
        "import sys\n"
        "sys.modules['triton'] = sys.modules['egglog'] = sys.modules['lark'] = None\n"
        "sys.path.insert(0, 'tests')\n"
        "import pytest, cuda_kernels\n"
        "cuda_kernels.emitting(pytest.MonkeyPatch(), lambda _: 'plain')\n"
        "import mirage_py\n"
        "print(mirage_py.load(sys.argv[1]).plan.backend)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, saved], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "cuda"
