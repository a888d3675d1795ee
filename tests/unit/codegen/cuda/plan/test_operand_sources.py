"""Left operands that a loop keeps in registers, and whose registers ptxas would give away."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from cuda_plans import cuda_plan, for_cuda, kernel_of, planned
from nightly import NIGHTLY
from plans import attention_plan, relative_error

from mirage_py.codegen.cuda.plan import kernel_plan
from mirage_py.errors import CompileError
from mirage_py.runtime.compile.compile_cuda import CudaSource, machine_code
from mirage_py.runtime.compile.compiled_facts import cuda_tools
from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.operators import named
from mirage_py.verify.numerical_check.input_sets import drawn_sets

COPY = "hand_over(q_tile_now, q_tile);"
PROGRAM = """
Q[64, 64], K[256, 64], V[256, 64] : f16
let A[q, s] = sum[c](Q[q, c] * K[s, c]){norm}
O[q, e] = sum[s]({weight}(A[q, s]) * V[s, e])
"""
KERNEL = """
kernel weighted {{
  grid q by 64
  %0 = load Q[q, c]
  loop s by 64 {{
    %1 = load K[s, c]
    %2 = matmul[c] %0, %1
    {lines}
    %{n} = {weight} %{m}
    %{v} = load V[s, e]
    %{p} = matmul[s] %{n}, %{v}
    %{a} = accum_sum %{p}
  }}
  store O[q, e] = %{a}
}}
"""
NORMS = ("%3 = square %1", "%4 = sum[c] %3", "%5 = rsqrt %4", "%6 = mul %2, %5")


def attention(keys: int = 64, warps: int = 4, rows: int = 64, **flags: str) -> Plan:
    """Queries of 64 elements in tiles of ``rows``, keys in tiles of ``keys``."""
    plan = attention_plan(1, rows, 3 * keys, 64, (rows, keys))
    wanted = {"arch": "sm_90a", "producer": "warps", "rescaling": "lazy"}
    return for_cuda(plan, num_warps=warps, num_stages=2, **wanted | flags)


def weighted(weight: str, *, normed: bool = False) -> Plan:
    """Attention that weighs values by a function of scores; with ``normed`` keys the warps that
    fetch take their norms.
    """
    m = 6 if normed else 2
    places = {"m": m, "n": m + 1, "v": m + 2, "p": m + 3, "a": m + 4, "weight": weight}
    norm = " * rsqrt(sum[c](K[s, c] * K[s, c]))" if normed else ""
    kernel = KERNEL.format(lines="\n    ".join(NORMS if normed else ()), **places)
    flags = {"arch": "sm_90a", "producer": "warps"} | ({"sums": "producer"} if normed else {})
    return for_cuda(cuda_plan(PROGRAM.format(norm=norm, weight=weight), kernel, 3), 4, **flags)


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
    assert planned(attention(**flags)).overwritten == ()


BRANCHES = {
    "norms of keys": weighted("relu", normed=True),
    **{w: weighted(w) for w in named(lambda o: o.arity == 1 and o.branches)},
}


@pytest.mark.parametrize("way", BRANCHES)
def test_what_branches_too(way):
    plan = planned(BRANCHES[way])
    (first, _) = plan.layouts.mmas
    assert plan.overwritten == (first,)


STRAIGHT = named(lambda o: o.arity == 1 and o.c != "" and not o.branches)
WAYS = {"vote": AS_MANY[1], **BRANCHES, **{name: weighted(name) for name in STRAIGHT}}


@pytest.mark.parametrize("weight", STRAIGHT)
def test_what_does_not_branch(weight):
    assert planned(weighted(weight)).overwritten == ()


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
def test_norms_of_keys_agree_with_float64():
    plan = BRANCHES["norms of keys"]
    (random,) = drawn_sets(plan.ugraph.program, 5, ("random",))
    q, k, v = (random.arrays[name] for name in "QKV")
    weights = np.maximum(q @ k.T / np.sqrt((k * k).sum(1)), 0)
    assert relative_error(run_emulated(plan, random.arrays)["O"], weights @ v) < 2e-3


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
def test_agrees_with_float64():
    (random,) = drawn_sets(AS_MANY[1].ugraph.program, 5, ("random",))
    inputs = random.arrays
    found = run_emulated(AS_MANY[1], inputs)["O"]
    scores = np.exp(inputs["Q"] @ inputs["K"])
    wanted = scores @ inputs["V"] / scores.sum(-1, keepdims=True)
    assert relative_error(found, wanted) < 2e-3


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.skipif(not cuda_tools("nvdisasm"), reason="no nvdisasm")
@pytest.mark.parametrize("way", WAYS if NIGHTLY else ("vote", "norms of keys", "log1p", "exp"))
def test_ptxas_keeps_them_apart(monkeypatch, tmp_path: Path, way: str):
    """Without the copy the machine code is refused. Compilers take two seconds."""
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))
    assert machine_code(CudaSource.of(kernel_of(WAYS[way])), 90).cubin


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.skipif(not cuda_tools("nvdisasm"), reason="no nvdisasm")
def test_without_the_copy_it_is_refused(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernel_plan, "overwritten_operands", lambda *_: ())
    with pytest.raises(CompileError, match="same registers"):
        machine_code(CudaSource.of(kernel_of(BRANCHES["norms of keys"])), 90)
