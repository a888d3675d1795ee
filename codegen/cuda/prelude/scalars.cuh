// 2 to the power of x, of about 22 bits; no subnormal numbers.
__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// e to the power of x, of about 22 bits where x is small.
__device__ __forceinline__ float exp_fast(float x) { return exp2_fast(x * 1.4426950408889634f); }

// 1 / sqrt(x), of about 22 bits.
__device__ __forceinline__ float rsqrt_fast(float x) {
    float y;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 1 / x, of about 23 bits; 0 where that is below the normal numbers. Division has a slow path, and with
// it a branch for each register.
__device__ __forceinline__ float reciprocal_fast(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// x times the normal distribution function, which for negative x is erfc(|x| / sqrt(2)) / 2, here
// t 2^(p(t) - x^2 / log(4)): Chebyshev's approximation in Numerical Recipes (6.2), within 1.2e-7 of
// erfc itself, where 1 + erf(x) cancels, in half of the instructions of erff.
__device__ __forceinline__ float gelu_fast(float x) {
    const float z = fabsf(x) * 0.70710678f;
    const float t = reciprocal_fast(0.5f * z + 1.0f);
    float p = 0.24651730f;
    p = p * t - 1.18611495f;
    p = p * t + 2.14747446f;
    p = p * t - 1.63775315f;
    p = p * t + 0.40232158f;
    p = p * t - 0.26875686f;
    p = p * t + 0.13963006f;
    p = p * t + 0.53970062f;
    p = p * t + 1.44272920f;
    p = p * t - 2.82574822f;
    const float below = t * exp2_fast(z * z * -1.44269504f + p);
    return x * (x > 0.0f ? 1.0f - below : below);
}

// The larger number; NaN where one is.
__device__ __forceinline__ float max_nan(float a, float b) {
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}

// The nearest number of float8 e4m3; 448 for what is beyond.
__device__ __forceinline__ float nearest_e4m3(float x) {
    float size = fminf(fabsf(x), 448.0f);
    int exponent = max((__float_as_int(size) >> 23) - 127, -6);
    float place = __int_as_float((exponent + 124) << 23);
    float rounded = copysignf(rintf(size / place) * place, x);
    return x != x ? x : rounded;
}
