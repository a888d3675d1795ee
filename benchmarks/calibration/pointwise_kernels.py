"""ReLU of bfloat16 by hand: the text of streaming kernels in CUDA, and one in Triton.

The import needs triton. A CUDA kernel reads all accesses of a thread, 16 bytes each, before it
writes the first; or copies tiles through shared memory by TMA and computes in place.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOADS = (
    "ld.global",
    "ld.global.nc.L1::no_allocate",
    "ld.global.cs",
    "ld.global.nc.L1::no_allocate.L2::256B",
    "ld.global.L1::evict_first",
)
STORES = ("st.global", "st.global.cs", "st.global.L1::no_allocate", "st.global.wt")

_COMMON = r"""
struct __align__(16) Vector { unsigned at[4]; };

__device__ __forceinline__ Vector relu(Vector v) {
    #pragma unroll
    for (int i = 0; i < 4; ++i)
        asm("max.bf16x2 %0, %0, %1;" : "+r"(v.at[i]) : "r"(0));
    return v;
}
"""

_STREAM = r"""
extern "C" __global__ void relu_stream(const Vector* x, Vector* y, long long count) {
    const long long tile = (long long)blockDim.x * VECTORS;
    long long block = blockIdx.x;
    do {
        Vector v[VECTORS];
        const long long at = block * tile + threadIdx.x;
        #pragma unroll
        for (int i = 0; i < VECTORS; ++i)
            asm volatile("LOAD.v4.u32 {%0, %1, %2, %3}, [%4];"
                : "=r"(v[i].at[0]), "=r"(v[i].at[1]), "=r"(v[i].at[2]), "=r"(v[i].at[3])
                : "l"(x + at + (long long)i * blockDim.x));
        #pragma unroll
        for (int i = 0; i < VECTORS; ++i) {
            const Vector w = relu(v[i]);
            asm volatile("STORE.v4.u32 [%4], {%0, %1, %2, %3};"
                :: "r"(w.at[0]), "r"(w.at[1]), "r"(w.at[2]), "r"(w.at[3]),
                   "l"(y + at + (long long)i * blockDim.x) : "memory");
        }
        block += gridDim.x;
    } while (PERSISTENT && block * tile < count);
}
"""

_BULK = r"""
__device__ __forceinline__ unsigned shared(const void* at) {
    return (unsigned)__cvta_generic_to_shared(at);
}

__device__ __forceinline__ void load(const char* x, char* to, unsigned long long* bar) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"
        :: "r"(shared(bar)), "n"(BYTES));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1], %2, [%3];"
        :: "r"(shared(to)), "l"(x), "n"(BYTES), "r"(shared(bar)) : "memory");
}

extern "C" __global__ void relu_bulk(const char* x, char* y, long long bytes) {
    extern __shared__ __align__(128) char ring[];
    __shared__ unsigned long long full[STAGES];
    const long long step = (long long)gridDim.x * BYTES;
    const long long first = (long long)blockIdx.x * BYTES;
    const long long tiles = (bytes - first + step - 1) / step;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i)
            asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(shared(&full[i])));
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    __syncthreads();
    if (threadIdx.x == 0)
        for (int n = 0; n < STAGES - 1 && n < tiles; ++n)
            load(x + first + n * step, ring + n * BYTES, &full[n]);
    for (long long n = 0; n < tiles; ++n) {
        const int stage = n % STAGES;
        asm volatile("{.reg .pred done; WAIT: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;"
            " @done bra DONE; bra WAIT; DONE: }"
            :: "r"(shared(&full[stage])), "r"((unsigned)(n / STAGES) & 1) : "memory");
        Vector* tile = reinterpret_cast<Vector*>(ring + stage * BYTES);
        for (int i = threadIdx.x; i < BYTES / 16; i += blockDim.x) tile[i] = relu(tile[i]);
        asm volatile("fence.proxy.async.shared::cta;");
        __syncthreads();
        if (threadIdx.x == 0) {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                :: "l"(y + first + n * step), "r"(shared(tile)), "n"(BYTES) : "memory");
            asm volatile("cp.async.bulk.commit_group;");
            const long long next = n + STAGES - 1;
            if (next < tiles) {
                asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
                const int free = next % STAGES;
                load(x + first + next * step, ring + free * BYTES, &full[free]);
            }
        }
    }
    if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;");
}
"""


def stream_text(vectors: int, load: int, store: int, *, persistent: bool) -> str:
    """CUDA: so many accesses of a thread, with the instructions at these places of ``LOADS`` and
    ``STORES``; ``relu_stream(x, y, vectors in all)``.
    """
    text = _STREAM.replace("VECTORS", str(vectors)).replace("PERSISTENT", str(int(persistent)))
    return _COMMON + text.replace("LOAD", LOADS[load]).replace("STORE", STORES[store])


def bulk_text(tile_bytes: int, stages: int) -> str:
    """CUDA: a ring of tiles in shared memory, copied by TMA; ``relu_bulk(x, y, bytes in all)``."""
    return _COMMON + _BULK.replace("BYTES", str(tile_bytes)).replace("STAGES", str(stages))


# Without annotations, which triton would compile too.
@triton.jit  # type: ignore[misc, untyped-decorator, unused-ignore]
def relu_blocks(x, y, BLOCK: tl.constexpr, HINT: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Hint 1 is ``evict_first`` for the load, 2 for load and store."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at) if HINT == 0 else tl.load(x + at, eviction_policy="evict_first")
    value = tl.where(value > 0, value, 0.0)
    if HINT == 2:
        tl.store(y + at, value, eviction_policy="evict_first")
    else:
        tl.store(y + at, value)
