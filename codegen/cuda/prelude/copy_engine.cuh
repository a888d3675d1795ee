// How the copy engine sees a tensor: CUtensorMap, made by the host.
struct alignas(64) TensorMap {
    unsigned long long words[16];
};

// L2 gives such lines away first.
__device__ __forceinline__ unsigned long long evict_first_policy() {
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// Starts to load a tile of 1 axes to shared memory (c0: the contiguous one).
__device__ __forceinline__ void tma_load_1d(
    void* to_shared, const TensorMap* map, unsigned long long* bar, int c0) {
    asm volatile(
        "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3}], [%2];"
        :: "r"(shared_address(to_shared)), "l"(map), "r"(shared_address(bar)),
           "r"(c0)
        : "memory");
}

// Starts to load a tile of 2 axes to shared memory (c0: the contiguous one).
__device__ __forceinline__ void tma_load_2d(
    void* to_shared, const TensorMap* map, unsigned long long* bar, int c0, int c1) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4}], [%2];"
        :: "r"(shared_address(to_shared)), "l"(map), "r"(shared_address(bar)),
           "r"(c0), "r"(c1)
        : "memory");
}

// Starts to load a tile of 3 axes to shared memory (c0: the contiguous one).
__device__ __forceinline__ void tma_load_3d(
    void* to_shared, const TensorMap* map, unsigned long long* bar, int c0, int c1, int c2) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5}], [%2];"
        :: "r"(shared_address(to_shared)), "l"(map), "r"(shared_address(bar)),
           "r"(c0), "r"(c1), "r"(c2)
        : "memory");
}

// Starts to load a tile of 4 axes to shared memory (c0: the contiguous one).
__device__ __forceinline__ void tma_load_4d(
    void* to_shared, const TensorMap* map, unsigned long long* bar, int c0, int c1, int c2, int c3) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6}], [%2];"
        :: "r"(shared_address(to_shared)), "l"(map), "r"(shared_address(bar)),
           "r"(c0), "r"(c1), "r"(c2), "r"(c3)
        : "memory");
}

// Starts to load a tile of 5 axes to shared memory (c0: the contiguous one).
__device__ __forceinline__ void tma_load_5d(
    void* to_shared, const TensorMap* map, unsigned long long* bar, int c0, int c1, int c2, int c3, int c4) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
        :: "r"(shared_address(to_shared)), "l"(map), "r"(shared_address(bar)),
           "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
        : "memory");
}

// Starts to load a tile of 1 axes to shared memory (c0: the contiguous one); L2 does not keep it.
__device__ __forceinline__ void tma_load_1d_evict_first(
    void* to_shared, const TensorMap* map, unsigned long long* bar, int c0) {
    asm volatile(
        "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3}], [%2], %4;"
        :: "r"(shared_address(to_shared)), "l"(map), "r"(shared_address(bar)),
           "r"(c0), "l"(evict_first_policy())
        : "memory");
}

// Starts to load a tile of 2 axes to shared memory (c0: the contiguous one); L2 does not keep it.
__device__ __forceinline__ void tma_load_2d_evict_first(
    void* to_shared, const TensorMap* map, unsigned long long* bar, int c0, int c1) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4}], [%2], %5;"
        :: "r"(shared_address(to_shared)), "l"(map), "r"(shared_address(bar)),
           "r"(c0), "r"(c1), "l"(evict_first_policy())
        : "memory");
}

// Starts to load a tile of 3 axes to shared memory (c0: the contiguous one); L2 does not keep it.
__device__ __forceinline__ void tma_load_3d_evict_first(
    void* to_shared, const TensorMap* map, unsigned long long* bar, int c0, int c1, int c2) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5}], [%2], %6;"
        :: "r"(shared_address(to_shared)), "l"(map), "r"(shared_address(bar)),
           "r"(c0), "r"(c1), "r"(c2), "l"(evict_first_policy())
        : "memory");
}

// Starts to load a tile of 4 axes to shared memory (c0: the contiguous one); L2 does not keep it.
__device__ __forceinline__ void tma_load_4d_evict_first(
    void* to_shared, const TensorMap* map, unsigned long long* bar, int c0, int c1, int c2, int c3) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;"
        :: "r"(shared_address(to_shared)), "l"(map), "r"(shared_address(bar)),
           "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(evict_first_policy())
        : "memory");
}

// Starts to load a tile of 5 axes to shared memory (c0: the contiguous one); L2 does not keep it.
__device__ __forceinline__ void tma_load_5d_evict_first(
    void* to_shared, const TensorMap* map, unsigned long long* bar, int c0, int c1, int c2, int c3, int c4) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;"
        :: "r"(shared_address(to_shared)), "l"(map), "r"(shared_address(bar)),
           "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "l"(evict_first_policy())
        : "memory");
}

// Starts to load pixels of windows to shared memory, from a place of 1 axes on (c1: the fastest), each
// moved by these offsets.
__device__ __forceinline__ void tma_load_im2col_3d(
    void* to_shared, const TensorMap* map, unsigned long long* bar, int c0, int c1, int c2, int o0) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5}], [%2], {%6};"
        :: "r"(shared_address(to_shared)), "l"(map), "r"(shared_address(bar)),
           "r"(c0), "r"(c1), "r"(c2), "h"(static_cast<unsigned short>(o0))
        : "memory");
}

// Starts to load pixels of windows to shared memory, from a place of 2 axes on (c1: the fastest), each
// moved by these offsets.
__device__ __forceinline__ void tma_load_im2col_4d(
    void* to_shared, const TensorMap* map, unsigned long long* bar, int c0, int c1, int c2, int c3, int o0, int o1) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};"
        :: "r"(shared_address(to_shared)), "l"(map), "r"(shared_address(bar)),
           "r"(c0), "r"(c1), "r"(c2), "r"(c3), "h"(static_cast<unsigned short>(o0)), "h"(static_cast<unsigned short>(o1))
        : "memory");
}

// Starts to load pixels of windows to shared memory, from a place of 3 axes on (c1: the fastest), each
// moved by these offsets.
__device__ __forceinline__ void tma_load_im2col_5d(
    void* to_shared, const TensorMap* map, unsigned long long* bar, int c0, int c1, int c2, int c3, int c4, int o0, int o1, int o2) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], {%8, %9, %10};"
        :: "r"(shared_address(to_shared)), "l"(map), "r"(shared_address(bar)),
           "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "h"(static_cast<unsigned short>(o0)), "h"(static_cast<unsigned short>(o1)), "h"(static_cast<unsigned short>(o2))
        : "memory");
}

// Starts to load `bytes` neighbours to shared memory; all three multiples of 16.
__device__ __forceinline__ void bulk_load(
    void* to_shared, const void* from_global, unsigned bytes, unsigned long long* bar) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1], %2, [%3];"
        :: "r"(shared_address(to_shared)), "l"(from_global), "r"(bytes), "r"(shared_address(bar))
        : "memory");
}

// Starts to load `bytes` neighbours to shared memory; all three multiples of 16; L2 does not keep them.
__device__ __forceinline__ void bulk_load_evict_first(
    void* to_shared, const void* from_global, unsigned bytes, unsigned long long* bar) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1], %2, [%3], %4;"
        :: "r"(shared_address(to_shared)), "l"(from_global), "r"(bytes), "r"(shared_address(bar)),
           "l"(evict_first_policy())
        : "memory");
}

// Fetches the description of a tensor ahead.
__device__ __forceinline__ void tma_prefetch(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
}

// What this thread has written to shared memory comes before what the copy engine and wgmma do there.
__device__ __forceinline__ void fence_async_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
