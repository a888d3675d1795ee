// Two floats as two halves, each the nearest, ties to even.
__device__ __forceinline__ unsigned pack_f16(float low, float high) {
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// Two floats as two bfloat16, each the nearest, ties to even.
__device__ __forceinline__ unsigned pack_bf16(float low, float high) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// The lower of two halves.
__device__ __forceinline__ float low_f16(unsigned pair) {
    float x;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(x) : "r"(pair));
    return x;
}

// The upper of two halves.
__device__ __forceinline__ float high_f16(unsigned pair) {
    float x;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(x) : "r"(pair));
    return x;
}

// The lower of two bfloat16.
__device__ __forceinline__ float low_bf16(unsigned pair) { return __uint_as_float(pair << 16); }

// The upper of two bfloat16.
__device__ __forceinline__ float high_bf16(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }

// Products of two pairs of halves.
__device__ __forceinline__ unsigned mul_f16x2(unsigned a, unsigned b) {
    unsigned product;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

// Products of two pairs of bfloat16: a b - 0, for sm_80 cannot multiply them alone.
__device__ __forceinline__ unsigned mul_bf16x2(unsigned a, unsigned b) {
    unsigned product;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
    return product;
}
