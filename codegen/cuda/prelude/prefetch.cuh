// Memory that later kernels read: of so many rows, one every so many bytes, the first few bytes.
struct alignas(64) Prefetch {
    static constexpr int most = 5;
    const unsigned char* begin[most];
    unsigned rows[most], stride[most], bytes[most];
};

// Asks the L2 for it, by the first threads of each block; where there are more blocks than rows, by
// the last ones, which run when memory has the least to do. Nobody waits for what comes.
__device__ __forceinline__ void prefetch_to_l2(const Prefetch& what, unsigned threads) {
    if (threadIdx.x >= threads) return;
    const unsigned first = threadIdx.x * gridDim.x + (gridDim.x - 1 - blockIdx.x);
    #pragma unroll
    for (int i = 0; i < Prefetch::most; ++i) {
        const unsigned char* const begin = what.begin[i];
        const unsigned rows = what.rows[i], stride = what.stride[i], bytes = what.bytes[i];
        for (unsigned row = first; row < rows; row += threads * gridDim.x) {
            asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;"
                         :: "l"(begin + (unsigned long long)row * stride), "r"(bytes) : "memory");
        }
    }
}
