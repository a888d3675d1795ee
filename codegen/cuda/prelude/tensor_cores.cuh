// d += a b of a warp: 16x16 by 16x8, f16 with sums in float.
__device__ __forceinline__ void mma_f16(float& d0, float& d1, float& d2, float& d3, unsigned a0,
                                        unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                        unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// d += a b of a warp: 16x16 by 16x8, bf16 with sums in float.
__device__ __forceinline__ void mma_bf16(float& d0, float& d1, float& d2, float& d3, unsigned a0,
                                        unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                        unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// d += a b of a warp: 16x8 by 8x8, tf32 with sums in float.
__device__ __forceinline__ void mma_tf32(float& d0, float& d1, float& d2, float& d3, unsigned a0,
                                         unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                         unsigned b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// The nearest number that tf32 has, ties away from zero.
__device__ __forceinline__ unsigned to_tf32(float x) {
    unsigned y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
}

// d += a b as exactly as in float32, but for numbers below 2^-115, infinities and what rounds to
// them: each operand is the sum of two numbers of tf32. Tensor cores cut sums off, so what they add
// up is this product alone.
__device__ __forceinline__ void mma_tf32x3(float& d0, float& d1, float& d2, float& d3, float a0,
                                           float a1, float a2, float a3, float b0, float b1) {
    unsigned A0 = to_tf32(a0), A1 = to_tf32(a1), A2 = to_tf32(a2), A3 = to_tf32(a3);
    unsigned B0 = to_tf32(b0), B1 = to_tf32(b1);
    float e0 = 0.0f, e1 = 0.0f, e2 = 0.0f, e3 = 0.0f;
    mma_tf32(e0, e1, e2, e3, to_tf32(a0 - __uint_as_float(A0)), to_tf32(a1 - __uint_as_float(A1)),
             to_tf32(a2 - __uint_as_float(A2)), to_tf32(a3 - __uint_as_float(A3)), B0, B1);
    mma_tf32(e0, e1, e2, e3, A0, A1, A2, A3, to_tf32(b0 - __uint_as_float(B0)),
             to_tf32(b1 - __uint_as_float(B1)));
    mma_tf32(e0, e1, e2, e3, A0, A1, A2, A3, B0, B1);
    d0 += e0, d1 += e1, d2 += e2, d3 += e3;
}
