// 16 bytes that are read once: neither L1 nor L2 keeps them.
__device__ __forceinline__ uint4 load_16_evict_first(const void* p) {
    uint4 x;
    asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(p), "l"(evict_first_policy()));
    return x;
}

// 8 bytes that are read once: neither L1 nor L2 keeps them.
__device__ __forceinline__ uint2 load_8_evict_first(const void* p) {
    uint2 x;
    asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v2.b32 {%0, %1}, [%2], %3;"
                 : "=r"(x.x), "=r"(x.y) : "l"(p), "l"(evict_first_policy()));
    return x;
}

// 4 bytes that are read once: neither L1 nor L2 keeps them.
__device__ __forceinline__ unsigned load_4_evict_first(const void* p) {
    unsigned x;
    asm volatile("ld.global.L1::no_allocate.L2::cache_hint.b32 %0, [%1], %2;"
                 : "=r"(x) : "l"(p), "l"(evict_first_policy()));
    return x;
}

// Stores 16 bytes that nobody reads soon.
__device__ __forceinline__ void store_16_evict_first(void* p, uint4 x) {
    asm volatile("st.global.L1::no_allocate.L2::cache_hint.v4.b32 [%0], {%1, %2, %3, %4}, %5;"
                 :: "l"(p), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "l"(evict_first_policy())
                 : "memory");
}
