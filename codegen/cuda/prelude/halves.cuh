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

// A half of each of two words, the first below the second.
__device__ __forceinline__ unsigned join_halves(unsigned a, unsigned b, bool a_high, bool b_high) {
    return __byte_perm(a, b, (a_high ? 0x0032u : 0x0010u) | (b_high ? 0x7600u : 0x5400u));
}

// a - b, of two halves each.
__device__ __forceinline__ unsigned sub_bf16x2(unsigned a, unsigned b) {
    unsigned d;
#if __CUDA_ARCH__ >= 900
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
#else
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(0x3f803f80u), "r"(b ^ 0x80008000u));
#endif
    return d;
}

// a - b, of two halves each.
__device__ __forceinline__ unsigned sub_f16x2(unsigned a, unsigned b) {
    unsigned d;
    asm("sub.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

// (a & mask) | bits, in one instruction.
__device__ __forceinline__ unsigned masked_with(unsigned a, unsigned mask, unsigned bits) {
    unsigned d;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(a), "r"(mask), "r"(bits));
    return d;
}

// The codes of four bytes less a zero point, those of bytes 0 and 2 together and those of 1 and 3, the
// low ones first. Below the significand of 128 they are what is added to it; `zero` is 128 more than
// the zero point.
__device__ __forceinline__ void codes_u4_bf16(unsigned* d, unsigned bytes, unsigned zero) {
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        d[i] = sub_bf16x2(masked_with(bytes >> 4 * i, 0x000f000fu, 0x43004300u), zero);
    }
}

// The same, below the significand of 1024.
__device__ __forceinline__ void codes_u4_f16(unsigned* d, unsigned bytes, unsigned zero) {
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        d[i] = sub_f16x2(masked_with(bytes >> 4 * i, 0x000f000fu, 0x64006400u), zero);
    }
}

// The two codes of each of four bytes and 16 more: the highest bits of the significand of 16. A
// factor with two bits 12 apart puts the codes of a byte 16 bits apart.
__device__ __forceinline__ void excess_u4_bf16(unsigned* d, unsigned bytes) {
    asm("dp2a.lo.u32.u32 %0, %1, %2, 0;" : "=r"(d[0]) : "r"(0x00008008u), "r"(bytes));
    asm("dp2a.lo.u32.u32 %0, %1, %2, 0;" : "=r"(d[1]) : "r"(0x80080000u), "r"(bytes));
    asm("dp2a.hi.u32.u32 %0, %1, %2, 0;" : "=r"(d[2]) : "r"(0x00008008u), "r"(bytes));
    asm("dp2a.hi.u32.u32 %0, %1, %2, 0;" : "=r"(d[3]) : "r"(0x80080000u), "r"(bytes));
    #pragma unroll
    for (int i = 0; i < 4; ++i) d[i] = masked_with(d[i], 0x00780078u, 0x41804180u);
}

// The same in the order of `codes_u4_bf16`.
__device__ __forceinline__ void excess_apart_u4_bf16(unsigned* d, unsigned bytes) {
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        const unsigned moved = i == 0 ? bytes << 3 : bytes >> (4 * i - 3);
        d[i] = masked_with(moved, 0x00780078u, 0x41804180u);
    }
}

// The high code of each byte before its low one, of pairs of codes of bytes two apart.
__device__ __forceinline__ void high_codes_first(unsigned* d) {
    #pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const unsigned low = d[i];
        d[i] = d[i + 1];
        d[i + 1] = low;
    }
}

// Four signed bytes, 0 and 2 together and 1 and 3. The low seven bits are the significand of 128, and
// the sign is what makes 256 of another 128: their difference is exact.
__device__ __forceinline__ void codes_i8_bf16(unsigned* d, unsigned bytes) {
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        d[i] = sub_bf16x2(masked_with(bytes >> 8 * i, 0x007f007fu, 0x43004300u),
                          masked_with(bytes >> 8 * i, 0x00800080u, 0x43004300u));
    }
}

// Four signed bytes, moved by 128, below the significand of 1024.
__device__ __forceinline__ void codes_i8_f16(unsigned* d, unsigned bytes) {
    const unsigned moved = bytes ^ 0x80808080u;
    d[0] = sub_f16x2(__byte_perm(moved, 0x64646464u, 0x4240), 0x64806480u);
    d[1] = sub_f16x2(__byte_perm(moved, 0x64646464u, 0x4341), 0x64806480u);
}

// What eight codes of e2m1 stand for, in the order of `codes_u4_bf16`. Their three bits are a tiny
// number's lowest exponent bits and first of significand, subnormal ones included: 2^126 times it.
__device__ __forceinline__ void codes_e2m1_bf16(unsigned* d, unsigned bytes) {
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        const unsigned signs = bytes << (12 - 4 * i) & 0x80008000u;
        d[i] = mul_bf16x2(masked_with(i < 2 ? bytes << (6 - 4 * i & 7) : bytes >> (4 * i - 6 & 7),
                                      0x01c001c0u, signs), 0x7e807e80u);
    }
}

// The same: 2^14 times it.
__device__ __forceinline__ void codes_e2m1_f16(unsigned* d, unsigned bytes) {
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        const unsigned signs = bytes << (12 - 4 * i) & 0x80008000u;
        d[i] = mul_f16x2(masked_with(i < 3 ? bytes << (9 - 4 * i & 15) : bytes >> 3, 0x0e000e00u,
                                     signs), 0x74007400u);
    }
}

// Pairs of halves times a half.
template <int N>
__device__ __forceinline__ void scale_bf16(unsigned* d, float factor) {
    const unsigned both = pack_bf16(factor, factor);
    #pragma unroll
    for (int i = 0; i < N; ++i) d[i] = mul_bf16x2(d[i], both);
}

// The same.
template <int N>
__device__ __forceinline__ void scale_f16(unsigned* d, float factor) {
    const unsigned both = pack_f16(factor, factor);
    #pragma unroll
    for (int i = 0; i < N; ++i) d[i] = mul_f16x2(d[i], both);
}
