"""Left operands that a loop keeps in registers, and whose registers ptxas would give away."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from cuda_plans import for_cuda, kernel_of
from plans import attention_plan, relative_error

from mirage_py.runtime.compile_cuda import CudaSource, machine_code
from mirage_py.runtime.emulated import run_emulated
from mirage_py.runtime.stand_in import cpp_compiler
from mirage_py.ugraph.plan import Plan
from mirage_py.verify.input_sets import drawn_sets

COPY = "hand_over(q_tile_now, q_tile);"


def attention(keys: int = 64, warps: int = 4, rows: int = 64, **flags: str) -> Plan:
    """Queries of 64 elements in tiles of ``rows``, keys in tiles of ``keys``."""
    plan = attention_plan(1, rows, 3 * keys, 64, (rows, keys))
    wanted = {"arch": "sm_90a", "producer": "warps", "rescaling": "lazy"}
    return for_cuda(plan, num_warps=warps, num_stages=2, **wanted | flags)


AS_MANY = [attention(), attention(128, 8), attention(rows=128), attention(producer="")]


@pytest.mark.parametrize(
    "plan", AS_MANY, ids=["one group", "two groups", "two tiles of rows", "cp.async"]
)
def test_queries_with_as_many_registers_as_exponentials_are_copied_in_each_iteration(plan: Plan):
    body = kernel_of(plan).body
    loop = body[body.index("for (int s_start") :]
    assert body.count(COPY) == loop.count(COPY) == 1
    assert "q_tile_now[4 * " in loop
    assert "q_tile[" not in loop


@pytest.mark.parametrize(
    "flags",
    [{"keys": 128}, {"rescaling": ""}, {"overlap": "on"}, {"overlap": "across"}],
    ids=["twice as many", "no branch", "late products", "read from shared memory"],
)
def test_others_stay_where_they_are(flags):
    assert COPY not in kernel_of(attention(**flags)).body


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
def test_agrees_with_float64():
    (random,) = drawn_sets(AS_MANY[1].ugraph.program, 5, ("random",))
    inputs = random.arrays
    found = run_emulated(AS_MANY[1], inputs)["O"]
    scores = np.exp(inputs["Q"] @ inputs["K"])
    wanted = scores @ inputs["V"] / scores.sum(-1, keepdims=True)
    assert relative_error(found, wanted) < 2e-3


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_ptxas_keeps_them_apart(monkeypatch, tmp_path: Path):
    """Without the copy machine code is refused, if nvdisasm is there to read it."""
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))
    assert machine_code(CudaSource.of(kernel_of(AS_MANY[1])), 90).cubin
