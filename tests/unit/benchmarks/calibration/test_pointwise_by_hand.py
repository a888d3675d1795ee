"""Kernels by hand for ReLU: what they are called, and that their text is what the name says."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from interpreted import in_interpreter

from benchmarks.calibration import pointwise_by_hand as by_hand
from benchmarks.calibration import pointwise_kernels
from benchmarks.calibration.pointwise_kernels import (
    LOADS,
    STORES,
    bulk_text,
    relu_blocks,
    stream_text,
)
from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel
from mirage_py.runtime.code_check import compile_ptx
from mirage_py.ugraph.ir.launch_config import LaunchConfig

RESULTS = Path(__file__).parents[4] / "benchmarks" / "results" / "h200-pointwise-by-hand.json"
VALUES = 4096 * 393216


def test_they_are_those_of_the_committed_file() -> None:
    """All but what it had no time for, and what is new: hints for stores."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    names = {row["kernel"] for row in rows}
    ours = {k[0] for k in by_hand.stream_kernels(VALUES // 8, 132)}
    ours |= {k[0] for k in by_hand.bulk_kernels()}
    ours |= {f"triton {b} warps {w} hint {h}" for b in by_hand._BLOCKS for w in by_hand._WARPS
             for h in (0, 1, 2)}  # fmt: skip
    assert names <= ours | set(by_hand._PYTORCH)
    assert len(names) == 481


@pytest.fixture(scope="module")
def streams() -> dict[str, str]:
    """PTX by name of a kernel for each choice of hints; one start of nvcc makes all."""
    text = pointwise_kernels._COMMON
    for load, store in by_hand._HINTS:
        own = stream_text(4, load, store, persistent=True).removeprefix(pointwise_kernels._COMMON)
        text += own.replace("relu_stream", f"relu_stream_{load}_{store}")
    entries = ptx_of(text).split(".entry ")[1:]
    return {entry.partition("(")[0]: entry for entry in entries}


@pytest.mark.parametrize(("load", "store"), by_hand._HINTS)
def test_the_text_of_a_streaming_kernel_has_its_accesses(
    streams: dict[str, str], load: int, store: int
) -> None:
    ptx = streams[f"relu_stream_{load}_{store}"]
    assert ptx.count(f"{LOADS[load]}.v4.u32") == 4
    assert ptx.count(f"{STORES[store]}.v4.u32") == 4
    assert ptx.count("max.bf16x2") == 16


def test_a_kernel_by_tma_copies_both_ways() -> None:
    ptx = ptx_of(bulk_text(8192, 3))
    assert len(re.findall(r"cp\.async\.bulk\.shared::cluster\.global", ptx)) >= 2
    assert len(re.findall(r"cp\.async\.bulk\.global\.shared::cta", ptx)) == 1
    assert by_hand.document([], 1024, "none")["loads"] == dict(enumerate(LOADS))


def compare(task: Mapping[str, Any]) -> list[bool]:
    """In the interpreter, where kernels are not compiled."""
    x = torch.randn(4096).bfloat16()
    found = []
    for hint in task["hints"]:
        y = torch.full_like(x, -1)
        relu_blocks[(4,)](x, y, 1024, hint, num_warps=4)
        found += [torch.equal(y, torch.relu(x)), bool((y > 0).any())]
    return found


def test_the_triton_kernel_is_relu() -> None:
    module = "unit.benchmarks.calibration.test_pointwise_by_hand"
    assert in_interpreter(compare, module, hints=[0, 1, 2]) == [True] * 6


def ptx_of(text: str) -> str:
    name = "relu_bulk" if "relu_bulk" in text else "relu_stream"
    kernel = CudaKernel(name, text, text, (), (), 1, 1, 128, 0, 90, LaunchConfig(4))
    return compile_ptx.ptx_of(kernel)
