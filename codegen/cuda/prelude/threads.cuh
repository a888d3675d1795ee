// Waits for so many threads (whole warps) at one of the block's 16 barriers; 0 is __syncthreads' own.
__device__ __forceinline__ void named_barrier(int id, int threads) {
    asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

// Counts among those that such a barrier waits for, and goes on.
__device__ __forceinline__ void named_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

// What the lane holds whose number differs in the bits of `mask`.
__device__ __forceinline__ float shuffle_xor(float x, int mask) {
    return __shfl_xor_sync(0xffffffffu, x, mask);
}

// What the lane holds whose number differs in the bits of `mask`.
__device__ __forceinline__ unsigned shuffle_xor(unsigned x, int mask) {
    return __shfl_xor_sync(0xffffffffu, x, mask);
}

// Lanes whose numbers differ in the bit `mask` swap: the upper one gives its first word, the lower one its second.
__device__ __forceinline__ void swap_with_lane(unsigned& first, unsigned& second, int mask) {
    const bool is_upper = threadIdx.x & mask;
    const unsigned got = shuffle_xor(is_upper ? first : second, mask);
    first = is_upper ? got : first;
    second = is_upper ? second : got;
}
