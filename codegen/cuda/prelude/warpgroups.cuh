// Orders registers and shared memory before the products of a warpgroup that follow.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Ends a group of products: those started since the last group.
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most N groups of products are under way.
template <int N>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
}

// Keeps the compiler from moving uses of the sums across this place.
template <int N>
__device__ __forceinline__ void keep(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// The same in registers of its own, written here and not before: those that products under way read
// are not free. The compiler does not know that tid.y is 0.
template <int N>
__device__ __forceinline__ void hand_over(unsigned (&to)[N], const unsigned (&from)[N]) {
    unsigned zero;
    asm volatile("mov.u32 %0, %%tid.y;" : "=r"(zero));
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("xor.b32 %0, %1, %2;" : "=r"(to[i]) : "r"(from[i]), "r"(zero));
}

// Describes a matrix in shared memory to wgmma: where it begins, its two steps, its swizzle (0, 32, 64, 128).
__device__ __forceinline__ unsigned long long shared_descriptor(
    const void* p, unsigned leading_bytes, unsigned stride_bytes, unsigned swizzle_bytes) {
    const unsigned long long mode =
        swizzle_bytes == 128 ? 1 : swizzle_bytes == 64 ? 2 : swizzle_bytes == 32 ? 3 : 0;
    return ((shared_address(p) & 0x3ffffu) >> 4) |
           static_cast<unsigned long long>((leading_bytes & 0x3ffffu) >> 4) << 16 |
           static_cast<unsigned long long>((stride_bytes & 0x3ffffu) >> 4) << 32 | mode << 62;
}

// Gives registers back: N of them are left for each thread of the warpgroup.
template <int N>
__device__ __forceinline__ void registers_decrease() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N));
}

// Takes registers: N of them for each thread of the warpgroup.
template <int N>
__device__ __forceinline__ void registers_increase() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N));
}
