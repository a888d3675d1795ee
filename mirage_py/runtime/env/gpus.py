"""The GPUs of this machine, without touching them: a process that has is of no use as a parent."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from mirage_py.errors import InputError
from mirage_py.targets import ALL_TARGETS


def visible() -> tuple[str, ...]:
    """What to put into CUDA_VISIBLE_DEVICES for each GPU that this process may use."""
    count = len(list(Path("/dev").glob("nvidia[0-9]*")))
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return tuple(str(number) for number in range(count))
    return tuple(c.strip() for c in chosen.split(",") if c.strip()) if count else ()


def asked_of_driver(query: str, gpu: str = "") -> list[str]:
    """Lines of nvidia-smi's answer, for one GPU or all; none where it is missing."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    which = ["-i", gpu] if gpu else []
    done = subprocess.run(
        [tool, f"--query-gpu={query}", "--format=csv,noheader,nounits", *which],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.stdout.strip().splitlines()


def model_of(gpu: str) -> str:
    """The model of one of the visible GPUs. Raises InputError where the driver does not say."""
    lines = asked_of_driver("name", gpu)
    if len(lines) != 1:
        raise InputError(
            f"the model of GPU {gpu} is not known",
            why="nvidia-smi does not say",
            repair="repair the driver, or leave it out: CUDA_VISIBLE_DEVICES",
        )
    return short_name(lines[0])


def short_name(gpu: str) -> str:
    """``h200`` of "NVIDIA H200": the name of its target, as in the names of result files."""
    for target in ALL_TARGETS:
        if re.search(rf"\b{target.name}\b", gpu, re.IGNORECASE):
            return target.name
    return re.sub(r"[^a-z0-9]+", "-", gpu.lower().removeprefix("nvidia ")).strip("-")
