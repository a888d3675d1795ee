"""Mistakes that a GPU forgives now and then: the CPU stand-in names each, with block and thread."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from collective_kernels import collective

from mirage_py.codegen.cuda.writer.cuda_kernel import TensorMap
from mirage_py.errors import CompileError
from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import run_kernels
from mirage_py.ugraph.ir.dtypes import F32

pytestmark = pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")

# What the threads of 4 warps do -> what is said of it, or None where all is well.
MISTAKES = {
    # Barriers and lanes.
    "if (thread != 70) __syncthreads();": r"deadlock(.|\n)*threads 70 to 70 have ended",
    "if (warp == 1) named_barrier(2, 96); else if (warp == 2) named_barrier(2, 64);": (
        r"named_barrier for 64 threads, where another one is for 96"
    ),
    "if (warp == 1) named_arrive(2, 64); else if (warp == 0) named_barrier(2, 96);": (
        r"named_barrier for 96 threads, where another one is for 64|named_arrive for 64"
    ),
    "if (warp == 0) named_barrier(3, 64);": r"threads 0 to 31 wait at named_barrier 3",
    "if (warp < 2) named_arrive(3, 64);": None,
    "if (warp < 2) named_barrier(2, 96);": r"threads 0 to 63 wait at named_barrier 2",
    "if (lane < 9) shuffle_xor(1.0f, 1); else __syncwarp();": (
        r"thread 9.*__syncwarp while thread 0"
    ),
    "if (thread < 3) shuffle_xor(1.0f, 1);": r"threads 0 to 2 wait at a shuffle",
    "__shfl_xor_sync(0xffu, 1.0f, 1);": r"a shuffle of a part of the warp",
    "cluster_wait();": r"cluster_wait without cluster_arrive",
    "if (thread) cluster_arrive();": None,
    "if (thread) { cluster_arrive(); cluster_wait(); }": r"wait at cluster_wait",
    # Places.
    "ldmatrix_x4(u, u, u, u, shared_memory + 16 * lane + 8);": (
        r"ldmatrix at 8 .* no multiple of 16"
    ),
    "cp_async_16(shared_memory + 4 * thread, X + 4 * thread, true);": (
        r"cp.async at 4 .* multiple of 16"
    ),
    "cp_async_16(shared_memory + 16 * thread, X + 1, true);": r"from a misaligned address",
    "cp_async_16(shared_memory, X + 126, true);": r"misaligned",
    "cp_async_16(shared_memory, X + 128, true);": r"read of 16 bytes outside of X",
    "cp_async_16(shared_memory + 16 * thread, X + 4096, false);": None,
    "f[8192 + thread] = 1;": r"write of 4 bytes at 32768 of shared memory, which has 32768 bytes",
    "f[-1] = 1;": r"ended by signal",
    "*(float2*)(f + 1) = make_float2(1, 2);": (
        r"multiples of 8, and the address is 4 above(.|\n)*line \d+: "
    ),
    "Y[thread + 1] = 1;": r"thread 127: write of 4 bytes outside of Y: 512 bytes from",
    "Y[thread] = X[thread - 1];": r"thread 0: read of 4 bytes outside of",
    "((float*)X)[thread] = 1;": r"write to the input X",
    "Y[thread] = *(float*)16;": r"ended by signal 11",
    "load_remote(f, 3);": r"block 3 of a cluster that has 1",
    # Races.
    "f[thread] = 1; Y[thread] = f[thread ^ 32];": (
        r"write at 128 .* without a barrier after the read"
    ),
    "f[thread] = 1; Y[thread] = f[thread ^ 1];": (
        r"write at 4 .* without a __syncwarp after the read by .*, thread 0\n.*\n *now"
    ),
    "f[thread] = 1; __syncwarp(); Y[thread] = f[thread ^ 1];": None,
    "Y[thread] = f[thread | 31]; if (lane == 31) f[thread] = 0;": (
        r"write at 124 .* without a __syncwarp after the read by block 0, thread 0"
    ),
    "f[thread] = 1; __syncwarp(); Y[thread] = f[thread ^ 32];": r"without a barrier",
    "f[thread] = 1; __syncthreads(); Y[thread] = f[thread ^ 32];": None,
    "f[thread] = 1; __syncthreads(); float x = f[thread ^ 32]; f[thread] = x;": (
        r"without a barrier"
    ),
    "if (warp < 2) { f[thread] = 1; named_barrier(1, 64); Y[thread] = f[thread ^ 32]; }": None,
    "if (warp == 0) { f[thread] = 1; named_arrive(1, 64); } else if (warp == 1) {"
    "named_barrier(1, 64); Y[thread] = f[thread - 32]; }": None,
    "if (warp == 0) { named_arrive(1, 64); f[thread] = 1; } else if (warp == 1) {"
    "named_barrier(1, 64); Y[thread] = f[thread - 32]; }": r"without a barrier",
    "if (warp < 2) { f[thread] = 1; named_arrive(1, 128); Y[thread] = f[thread ^ 32]; } else "
    "named_barrier(1, 128);": r"without a barrier",
    "if (warp < 3) { f[thread] = 1; if (warp < 2) named_barrier(1, 64); Y[thread] = f[95 "
    "- thread]; }": (
        r"without a barrier"
    ),
    "f[0] = 1; f[0] = 1;": None,  # the same value from everybody
    "atomicAdd(f + 1, 1.0f); __syncthreads(); Y[thread] = f[1];": None,
    # Copies.
    "cp_async_4(f + thread, X + thread, true); cp_async_commit(); Y[thread] = f[thread];": (
        r"nobody has waited"
    ),
    "cp_async_4(f + thread, X + thread, true); cp_async_wait<0>(); Y[thread] = f[thread];": (
        r"nobody has waited"
    ),
    "cp_async_4(f + thread, X + thread, true); cp_async_commit(); cp_async_wait<0>();"
    "Y[thread] = f[thread];": None,
    "cp_async_4(f + thread, X + thread, true); cp_async_commit(); cp_async_wait<0>();"
    "Y[thread] = f[thread ^ 64];": r"without a barrier",
    "Y[thread] = f[thread]; if (warp == 2) cp_async_4(f + lane, X, true);": (
        r"asynchronous copy at .* without a barrier after the read"
    ),
    # The copy engine.
    "if (!thread) { mbarrier_init(bar, 1); mbarrier_expect(bar, 64); bulk_load(f, X, 64, bar); }": (
        r"mbarrier_fence_init is missing"
    ),
    "START if (!thread) { mbarrier_expect(bar, 64); bulk_load(f, X, 64, bar); } __syncthreads();"
    "Y[thread] = f[0];": (
        r"nobody has waited"
    ),
    "START if (!thread) { mbarrier_expect(bar, 64); bulk_load(f, X, 64, bar); }"
    "mbarrier_wait(bar, 0); Y[thread] = f[0];": None,
    "START if (!thread) { mbarrier_expect(bar, 96); bulk_load(f, X, 64, bar); }"
    "mbarrier_wait(bar, 0);": r"deadlock(.|\n)*0 arrivals and 32 bytes to come",
    "START if (!thread) { mbarrier_expect(bar, 32); bulk_load(f, X, 64, bar); }"
    "mbarrier_wait(bar, 0);": r"32 bytes more than expected",
    "START if (!thread) mbarrier_arrive(bar); mbarrier_wait(bar, 0);": None,
    "START mbarrier_wait(bar, 1);": None,
    "START mbarrier_wait(bar, 0);": r"deadlock(.|\n)*1 arrivals and 0 bytes to come",
    "mbarrier_wait(bar, 0);": r"where no barrier was made",
    "if (!thread) mbarrier_init(bar, 1); mbarrier_wait(bar, 1);": (
        r"without __syncwarp|no __syncthreads"
    ),
    "START if (!thread) { mbarrier_expect(bar, 64); bulk_load(f + 1, X, 64, bar); }": (
        r"no multiple of 16"
    ),
    "START if (!thread) { mbarrier_expect(bar, 64); bulk_load(f, X, 60, bar); }": (
        r"60 bytes, no multiple"
    ),
    "START if (!thread) { mbarrier_expect(bar, 512); tma_load_2d(f + 16, &X_map, bar, 0, 0); }": (
        r"tma_load at 64 .* no multiple of 128"
    ),
    "START if (!thread) tma_load_3d(f, &X_map, bar, 0, 0, 0);": r"tma_load_3d of a tensor map of 2",
    # Products of warp groups: one of 64x8 by 16, both from what is there.
    "WGMMA wgmma_commit(); wgmma_wait<0>(); Y[thread] = d[0];": r"fence_async_shared is missing",
    "fence_async_shared(); __syncthreads(); WGMMA wgmma_commit(); wgmma_wait<0>(); "
    "Y[thread] = d[0];": (
        None
    ),
    "fence_async_shared(); __syncthreads(); WGMMA wgmma_commit(); wgmma_wait<0>(); "
    "f[thread] = 1;": (
        r"write at .* without a barrier after the read"
    ),
    "fence_async_shared(); __syncthreads(); WGMMA wgmma_commit();": r"products of .* under way",
    "float d[4]; wgmma_m64n8k16_f16_ss_kk(d, 0, 0, false);": r"without a wgmma_fence",
    "START if (!thread) { mbarrier_expect(bar, 64); bulk_load(f, X, 64, bar); }": (
        r"has ended while the copy engine(.|\n)*line \d+: "
    ),
    "fence_async_shared(); __syncthreads(); if (warp) { WGMMA wgmma_commit(); }": (
        r"wait at wgmma of n 8"
    ),
}  # fmt: skip

START = "if (!thread) { mbarrier_init(bar, 1); mbarrier_fence_init(); } __syncthreads();"
WGMMA = (
    "float d[4] = {}; wgmma_fence(); wgmma_m64n8k16_f16_ss_kk(d, "
    "shared_descriptor(shared_memory, 1024, 128, 0), "
    "shared_descriptor(shared_memory, 1024, 128, 0), true);"
)
# Without waiting there is NaN, also where nobody looks for races.
FORGOTTEN = (
    "cp_async_4(f + thread, X + thread, true); cp_async_commit(); Y[thread] = f[thread];",
    "START if (!thread) { mbarrier_expect(bar, 9); bulk_load(f, X, 512, bar); } Y[thread] = f[0];",
    "fence_async_shared(); __syncthreads(); WGMMA wgmma_commit(); Y[thread] = d[0];",
    "Y[thread] = f[1024 + thread];",
)


def all_in_one():
    """One kernel that does what the first input says: it is compiled once."""
    texts = [*MISTAKES, *FORGOTTEN]
    cases = "\n".join(
        f"    case {number}: {{ {text.replace('START', START).replace('WGMMA', WGMMA)} }} break;"
        for number, text in enumerate(texts)
    )
    filled = "for (int i = thread; i < 1024; i += 128) f[i] = 0; __syncthreads();"
    wgmma = [number for number, text in enumerate(texts) if "WGMMA" in text]
    is_wgmma = " || ".join(f"mode == {number}" for number in wgmma)
    code = f"""
    const int mode = static_cast<int>(mode_of[0]);
    float* f = reinterpret_cast<float*>(shared_memory);
    unsigned long long* bar = reinterpret_cast<unsigned long long*>(shared_memory + 8192);
    unsigned u = 0;
    if ({is_wgmma}) {{ {filled} }}
    switch (mode) {{
{cases}
    }}
"""
    return collective(
        "mistaken", code, {"mode_of": ((1,), F32), "X": ((128,), F32)}, ((128,), F32), threads=128,
        maps=(TensorMap("X_map", "X", (32, 4), (128,), (32, 4), 0),), capability=90,
    )  # fmt: skip


CASE = all_in_one()


def run(number: int, finds_races: bool = True):
    arrays = {"mode_of": np.array([float(number)]), "X": np.arange(128.0)}
    return run_kernels(CASE.program, (CASE.kernel,), arrays, finds_races=finds_races)["Y"]


@pytest.mark.parametrize("number", range(len(MISTAKES)), ids=str)
def test_it_is_named(number):
    said = [*MISTAKES.values()][number]
    if said is None:
        run(number)
        return
    with pytest.raises(CompileError) as caught:
        run(number)
    assert re.search(said, str(caught.value)), [*MISTAKES][number]


@pytest.mark.parametrize("number", range(len(FORGOTTEN)))
def test_what_was_not_waited_for_is_nan(number):
    assert np.isnan(run(len(MISTAKES) + number, finds_races=False)).all()


@pytest.mark.parametrize("barrier", ["", "cluster_arrive(); cluster_wait();"])
def test_a_block_of_a_cluster_must_have_begun(barrier):
    case = collective(
        "remote",
        f"""
    float* f = reinterpret_cast<float*>(shared_memory);
    {barrier}
    if (thread == 0) store_remote(f, cluster_rank() ^ 1, 7.0f);
    cluster_arrive();
    cluster_wait();
    Y[blockIdx.x * 32 + thread] = f[0];
""",
        {},
        ((64,), F32),
        grid=2,
        cluster=2,
        capability=90,
    )
    if barrier:
        assert (run_kernels(case.program, (case.kernel,), {})["Y"] == 7).all()
        return
    with pytest.raises(CompileError, match="may not have begun"):
        run_kernels(case.program, (case.kernel,), {})


def test_static_shared_memory_is_refused():
    kernel = replace(CASE.kernel, body="__global__ void mistaken() { __shared__ float x[3]; }")
    with pytest.raises(CompileError, match="not dynamic"):
        run_kernels(CASE.program, (kernel,), {"mode_of": np.zeros(1), "X": np.zeros(128)})


def test_what_no_compiler_takes_is_refused():
    kernel = replace(CASE.kernel, body="__global__ void mistaken() { undeclared(); }")
    with pytest.raises(CompileError, match="undeclared"):
        run_kernels(CASE.program, (kernel,), {"mode_of": np.zeros(1), "X": np.zeros(128)})
