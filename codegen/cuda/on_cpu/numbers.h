// The numbers of 16 bits: halves and bfloat16, rounded to the nearest, ties to even.
#pragma once
#include <string.h>

inline float __uint_as_float(unsigned x) {
    float y;
    memcpy(&y, &x, 4);
    return y;
}

inline unsigned __float_as_uint(float x) {
    unsigned y;
    memcpy(&y, &x, 4);
    return y;
}

namespace on_cpu {

inline float float_of_half(unsigned bits) {
    const unsigned sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, mantissa = bits & 0x3ffu;
    if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | mantissa << 13);
    if (exponent) return __uint_as_float(sign | (exponent + 112) << 23 | mantissa << 13);
    const float small = static_cast<float>(mantissa) * 5.9604644775390625e-08f;  // 2^-24
    return sign ? -small : small;
}

inline unsigned half_of_float(float x) {
    const unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000u;
    const unsigned size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return 0x7fffu;
    if (size >= 0x477ff000u) return sign | 0x7c00u;  // rounds to 2^16 or more
    if (size < 0x38800000u) {
        // Below 2^-14 the step is 2^-24, which is that of floats between 1/2 and 1.
        return sign | (__float_as_uint(__uint_as_float(size) + 0.5f) - 0x3f000000u);
    }
    return sign | (((size + 0xfffu + (size >> 13 & 1u)) >> 13) - 0x1c000u);
}

inline float float_of_bfloat(unsigned bits) { return __uint_as_float(bits << 16); }

inline unsigned bfloat_of_float(float x) {
    const unsigned bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

}  // namespace on_cpu

struct __half {
    unsigned short bits;
    __half() = default;
    __half(float x) : bits(static_cast<unsigned short>(on_cpu::half_of_float(x))) {}
    operator float() const { return on_cpu::float_of_half(bits); }
};
typedef __half half;

struct __nv_bfloat16 {
    unsigned short bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(float x) : bits(static_cast<unsigned short>(on_cpu::bfloat_of_float(x))) {}
    operator float() const { return on_cpu::float_of_bfloat(bits); }
};

struct alignas(4) __half2 {
    __half x, y;
};
typedef __half2 half2;

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

inline float __half2float(__half x) { return x; }
inline __half __float2half(float x) { return x; }
inline __half __float2half_rn(float x) { return x; }
inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat16 __float2bfloat16(float x) { return x; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
inline __half __ushort_as_half(unsigned short bits) {
    __half x;
    x.bits = bits;
    return x;
}
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
    __nv_bfloat16 x;
    x.bits = bits;
    return x;
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
