"""CUDA kernels written by hand, for tests of what comes after the emitter: each makes Y = X + X.

``from cuda_kernels import KERNELS, doubling_plan``; ``emitting`` has a plan give one of them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel, TensorMap
from mirage_py.runtime.base import emission
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, Section, UGraph

ROWS, COLUMNS = 64, 32
TILE = 8  # rows of a block

PLAIN = """\
extern "C" __global__ void __launch_bounds__(256) doubling(const float* X, float* Y) {
    const unsigned i = blockIdx.x * 256 + threadIdx.x;
    Y[i] = X[i] + X[i];
}
"""

# A tile comes through the copy engine; the tensor map is a parameter behind the pointers.
COPIED = """\
struct alignas(64) TensorMap { unsigned long long words[16]; };

__device__ unsigned in_shared(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

extern "C" __global__ void __launch_bounds__(256)
doubling(float* Y, const __grid_constant__ TensorMap X_map) {
    extern __shared__ __align__(128) float tile[];
    __shared__ alignas(8) unsigned long long bar;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(in_shared(&bar)));
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;"
                     :: "r"(in_shared(&bar)) : "memory");
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
            "[%0], [%1, {%3, %4}], [%2];"
            :: "r"(in_shared(tile)), "l"(&X_map), "r"(in_shared(&bar)), "r"(0),
               "r"(static_cast<int>(blockIdx.x) * 8) : "memory");
    }
    unsigned is_there = 0;
    while (!is_there)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; "
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_there) : "r"(in_shared(&bar)) : "memory");
    const unsigned i = threadIdx.x;
    Y[blockIdx.x * 256 + i] = tile[i] + tile[i];
}
"""

# Each block of a cluster writes what its neighbour has read.
CLUSTERED = """\
extern "C" __global__ void __cluster_dims__({cluster}, 1, 1) __launch_bounds__(256)
doubling(const float* X, float* Y) {{
    __shared__ float tile[256];
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    const unsigned i = threadIdx.x;
    tile[i] = X[blockIdx.x * 256 + i];
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    const unsigned other = (rank + 1) % {cluster};
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there)
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(&tile[i]))), "r"(other));
    float x;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(there) : "memory");
    Y[(blockIdx.x - rank + other) * 256 + i] = x + x;
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}}
"""


def doubling_plan(rows: int = ROWS) -> Plan:
    """Y = X + X of ``rows`` by 32 float32, for the CUDA back end."""
    builder = ProgramBuilder("doubling")
    builder.dim("r", rows)
    builder.dim("c", COLUMNS)
    builder.input("X", (rows, COLUMNS), F32)
    x = builder.load("X", ("r", "c"))
    builder.output("Y", builder.apply("add", x, x), ("r", "c"), F32)
    index = (ix.dim("r"), ix.dim("c"))
    nodes = (
        Node("load", (), Access("X", index), ("r", "c")),
        Node("add", (0, 0), None, ("r", "c")),
        Node("store", (1,), Access("Y", index), ("r", "c")),
    )
    block = BlockGraph("doubling", (GridAxis("r", TILE),), nodes, (Section((0, 1, 2)),))
    return Plan(UGraph(builder.build(), (block,)), (LaunchConfig(8),), backend="cuda")


def kernel(plan: Plan, kind: str) -> CudaKernel:
    """One of ``KERNELS`` for a plan of ``doubling_plan``."""
    (x,) = plan.ugraph.program.inputs
    y = plan.ugraph.program.outputs[0].tensor
    rows = x.shape[0]
    copied = kind == "copied"
    cluster = int(kind.removeprefix("cluster")) if kind.startswith("cluster") else 1
    source = {"copied": COPIED, "plain": PLAIN, "wrong": PLAIN.replace("+ X[i]", "+ 1")}.get(
        kind, CLUSTERED.format(cluster=cluster)
    )
    strides = (4 * COLUMNS,)
    maps = (TensorMap("X_map", "X", (COLUMNS, rows), strides, (COLUMNS, TILE), 0),)
    return CudaKernel(
        name="doubling",
        source=source,
        body=source,
        pointers=(y,) if copied else (x, y),
        tensor_maps=maps if copied else (),
        grid=rows // TILE,
        cluster=cluster,
        threads=256,
        smem_bytes=4 * TILE * COLUMNS if copied else 0,
        capability=80 if kind in ("plain", "wrong") else 90,
        options=plan.options[0],
    )


KERNELS = ("plain", "copied", "cluster2", "cluster16")


def emitting(monkeypatch: pytest.MonkeyPatch, kind_of: Callable[[Plan], str]) -> None:
    """From now on plans of the CUDA back end are emitted as the kernel of the kind they ask for."""
    before = emission._emitted

    def emitted(plan: Plan):
        return (kernel(plan, kind_of(plan)),) if plan.backend == "cuda" else before(plan)

    monkeypatch.setattr(emission, "_emitted", emitted)
