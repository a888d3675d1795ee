"""The GPUs of this machine, without touching them: a process that has is of no use as a parent."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from mirage_py.targets import ALL_TARGETS

_ASKED = {"driver": "driver_version", "max_sm_mhz": "clocks.max.sm", "power_limit_w": "power.limit"}


def visible() -> tuple[str, ...]:
    """What to put into CUDA_VISIBLE_DEVICES for each GPU that this process may use."""
    count = len(list(Path("/dev").glob("nvidia[0-9]*")))
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return tuple(str(number) for number in range(count))
    return tuple(c.strip() for c in chosen.split(",") if c.strip()) if count else ()


def driver_facts() -> dict[str, Any]:
    """Driver version, highest clock and power limit; empty where nvidia-smi is missing."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    query = f"--query-gpu={','.join(_ASKED.values())}"
    done = subprocess.run(
        [tool, query, "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    lines = done.stdout.strip().splitlines()
    values = [v.strip() for v in lines[0].split(",")] if lines else []
    return dict(zip(_ASKED, values, strict=False))


def short_name(gpu: str) -> str:
    """``h200`` of "NVIDIA H200": what a result file is called after."""
    for target in ALL_TARGETS:
        if re.search(rf"\b{target.name}\b", gpu, re.IGNORECASE):
            return target.name
    return re.sub(r"[^a-z0-9]+", "-", gpu.lower().removeprefix("nvidia ")).strip("-")
