// Memory that later kernels read: of so many rows, one every so many bytes, the first few bytes.
struct alignas(64) Prefetch {
    static constexpr int most = 5;
    const unsigned char* begin[most];
    unsigned rows[most], stride[most], bytes[most];
};

// Asks the L2 for it, all blocks together, by the first threads of each. Nobody waits for what comes.
__device__ __forceinline__ void prefetch_to_l2(const Prefetch& what, unsigned threads) {
    if (threadIdx.x >= threads) return;
    #pragma unroll
    for (int i = 0; i < Prefetch::most; ++i) {
        const unsigned char* const begin = what.begin[i];
        const unsigned rows = what.rows[i], stride = what.stride[i], bytes = what.bytes[i];
        for (unsigned row = threadIdx.x * gridDim.x + blockIdx.x; row < rows; row += threads * gridDim.x) {
            asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;"
                         :: "l"(begin + (unsigned long long)row * stride), "r"(bytes) : "memory");
        }
    }
}
