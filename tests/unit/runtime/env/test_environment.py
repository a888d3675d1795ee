from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from mirage_py.runtime.env import doctor
from mirage_py.runtime.env.doctor import environment_report
from mirage_py.runtime.env.environment import GpuInfo, target_of
from mirage_py.targets import H200

SEEN = GpuInfo("NVIDIA H200", 90, 132, 60 << 20, "13.0")


@pytest.mark.parametrize(
    ("name", "capability", "target"),
    [
        ("NVIDIA H200", 90, "h200"),
        ("NVIDIA H100 80GB HBM3", 90, "h100"),
        ("NVIDIA A100-SXM4-40GB", 80, "a100"),
        ("NVIDIA B200", 100, "b200"),
        ("NVIDIA GH200 480GB", 90, "sm_90"),
        ("NVIDIA GeForce RTX 4090", 89, "sm_89"),
        ("NVIDIA L4", 89, "sm_89"),
        ("NVIDIA GeForce RTX 5090", 120, "sm_120"),
        ("Tesla V100-SXM2-16GB", 70, "sm_70"),
    ],
)
def test_the_target_of_a_gpu(name: str, capability: int, target: str):
    found = target_of(replace(SEEN, name=name, capability=capability))
    assert found.name == target
    assert found.capability == capability
    assert found.sms == 132


def test_what_is_measured_stays_measured():
    assert target_of(SEEN) == H200
    assert not target_of(replace(SEEN, name="NVIDIA L4", capability=89)).measured


def test_a_slice_of_a_gpu_keeps_its_name():
    found = target_of(replace(SEEN, sms=60, l2_bytes=30 << 20))
    assert (found.name, found.sms, found.l2_bytes) == ("h200", 60, 30 << 20)


def test_without_a_device_torch_is_not_imported():
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "Path.glob = lambda self, pattern: iter(())\n"
        "from mirage_py.runtime.env.environment import detect_target, gpu\n"
        "assert gpu() is None and detect_target() is None\n"
        "assert 'torch' not in sys.modules and 'triton' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_report_runs_a_kernel():
    checks = {c.check: c for c in environment_report()}
    assert checks["compile a kernel"].ok
    ran = checks.get("run a kernel in the interpreter") or checks["run a kernel on the GPU"]
    assert (ran.ok, ran.detail) == (True, "right")
    assert checks["cache folder"].ok


def test_what_is_missing_comes_with_a_repair(monkeypatch: pytest.MonkeyPatch, tmp_path):
    class Distribution:
        def __init__(self, name: str) -> None:
            self.metadata = {"Name": name}

    monkeypatch.setattr(
        doctor,
        "distributions",
        lambda: [Distribution("cupy-cuda12x"), Distribution("cupy-cuda13x")],
    )
    twice = doctor._cupy()
    assert not twice.ok
    assert "pip uninstall cupy-cuda12x cupy-cuda13x" in twice.repair
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert not doctor._cache_folder().ok

    def broken() -> str:
        raise RuntimeError("no driver")

    check = doctor._guarded("x", broken)
    assert (check.ok, check.detail) == (False, "RuntimeError: no driver")
