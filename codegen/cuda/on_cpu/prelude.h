// The functions of ../prelude, with the same signatures.
#pragma once

// --- addresses, asynchronous copies

unsigned shared_address(const void* p);
inline long long checked_position(long long position, long long count) {
    if (position < 0 || position >= count) __trap();
    return position;
}
inline void cp_async_16(void* to, const void* from, bool is_in) { on_cpu::copy_async(to, from, 16, is_in); }
inline void cp_async_16_of_128(void* to, const void* from, bool is_in) { on_cpu::copy_async(to, from, 16, is_in); }
inline void cp_async_8(void* to, const void* from, bool is_in) { on_cpu::copy_async(to, from, 8, is_in); }
inline void cp_async_4(void* to, const void* from, bool is_in) { on_cpu::copy_async(to, from, 4, is_in); }
void cp_async_commit();
template <int N>
void cp_async_wait() {
    on_cpu::wait_for_copies(N);
}

// --- matrices of 8x8, products of a warp

inline void ldmatrix_x4(unsigned& a, unsigned& b, unsigned& c, unsigned& d, const void* row) {
    unsigned out[4];
    on_cpu::load_matrices(out, 4, false, row);
    a = out[0], b = out[1], c = out[2], d = out[3];
}
inline void ldmatrix_x4_trans(unsigned& a, unsigned& b, unsigned& c, unsigned& d, const void* row) {
    unsigned out[4];
    on_cpu::load_matrices(out, 4, true, row);
    a = out[0], b = out[1], c = out[2], d = out[3];
}
inline void ldmatrix_x2(unsigned& a, unsigned& b, const void* row) {
    unsigned out[2];
    on_cpu::load_matrices(out, 2, false, row);
    a = out[0], b = out[1];
}
inline void ldmatrix_x2_trans(unsigned& a, unsigned& b, const void* row) {
    unsigned out[2];
    on_cpu::load_matrices(out, 2, true, row);
    a = out[0], b = out[1];
}
inline void stmatrix_x4(void* row, unsigned a, unsigned b, unsigned c, unsigned d) {
    const unsigned in[4] = {a, b, c, d};
    on_cpu::store_matrices(in, 4, false, row);
}
inline void stmatrix_x4_trans(void* row, unsigned a, unsigned b, unsigned c, unsigned d) {
    const unsigned in[4] = {a, b, c, d};
    on_cpu::store_matrices(in, 4, true, row);
}
inline void mma_f16(float& d0, float& d1, float& d2, float& d3, unsigned a0, unsigned a1, unsigned a2,
    unsigned a3, unsigned b0, unsigned b1) {
    float* const d[4] = {&d0, &d1, &d2, &d3};
    const unsigned a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
    on_cpu::multiply(on_cpu::F16, d, a, b);
}
inline void mma_bf16(float& d0, float& d1, float& d2, float& d3, unsigned a0, unsigned a1, unsigned a2,
    unsigned a3, unsigned b0, unsigned b1) {
    float* const d[4] = {&d0, &d1, &d2, &d3};
    const unsigned a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
    on_cpu::multiply(on_cpu::BF16, d, a, b);
}
inline void mma_tf32(float& d0, float& d1, float& d2, float& d3, unsigned a0, unsigned a1, unsigned a2,
    unsigned a3, unsigned b0, unsigned b1) {
    float* const d[4] = {&d0, &d1, &d2, &d3};
    const unsigned a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
    on_cpu::multiply(on_cpu::TF32, d, a, b);
}

inline unsigned to_tf32(float x) {
    const unsigned bits = __float_as_uint(x);
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
}
inline void mma_tf32x3(float& d0, float& d1, float& d2, float& d3, float a0, float a1, float a2, float a3,
    float b0, float b1) {
    const float a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
    float e[4] = {0, 0, 0, 0};
    float* const to[4] = {&e[0], &e[1], &e[2], &e[3]};
    unsigned A[4], B[2], rest_a[4], rest_b[2];
    for (int i = 0; i < 4; ++i) A[i] = to_tf32(a[i]), rest_a[i] = to_tf32(a[i] - __uint_as_float(A[i]));
    for (int i = 0; i < 2; ++i) B[i] = to_tf32(b[i]), rest_b[i] = to_tf32(b[i] - __uint_as_float(B[i]));
    on_cpu::multiply(on_cpu::TF32, to, rest_a, B);
    on_cpu::multiply(on_cpu::TF32, to, A, rest_b);
    on_cpu::multiply(on_cpu::TF32, to, A, B);
    d0 += e[0], d1 += e[1], d2 += e[2], d3 += e[3];
}

// --- pairs of halves, scalars

inline unsigned pack_f16(float low, float high) {
    return on_cpu::half_of_float(low) | on_cpu::half_of_float(high) << 16;
}
inline unsigned pack_bf16(float low, float high) {
    return on_cpu::bfloat_of_float(low) | on_cpu::bfloat_of_float(high) << 16;
}
inline float low_f16(unsigned pair) { return on_cpu::float_of_half(pair & 0xffffu); }
inline float high_f16(unsigned pair) { return on_cpu::float_of_half(pair >> 16); }
inline float low_bf16(unsigned pair) { return __uint_as_float(pair << 16); }
inline float high_bf16(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }
inline unsigned mul_f16x2(unsigned a, unsigned b) {
    return pack_f16(low_f16(a) * low_f16(b), high_f16(a) * high_f16(b));
}
inline unsigned mul_bf16x2(unsigned a, unsigned b) {
    return pack_bf16(low_bf16(a) * low_bf16(b), high_bf16(a) * high_bf16(b));
}
inline unsigned join_halves(unsigned a, unsigned b, bool a_high, bool b_high) {
    return (a >> (a_high ? 16 : 0) & 0xffffu) | (b >> (b_high ? 16 : 0) & 0xffffu) << 16;
}
inline unsigned sub_bf16x2(unsigned a, unsigned b) {
    return pack_bf16(low_bf16(a) - low_bf16(b), high_bf16(a) - high_bf16(b));
}
inline unsigned sub_f16x2(unsigned a, unsigned b) {
    return pack_f16(low_f16(a) - low_f16(b), high_f16(a) - high_f16(b));
}
inline unsigned masked_with(unsigned a, unsigned mask, unsigned bits) { return (a & mask) | bits; }
inline void codes_u4_bf16(unsigned* d, unsigned bytes, unsigned zero) {
    const float z = low_bf16(zero) - 128.0f;
    for (int n = 0; n < 4; ++n) {
        const unsigned two = bytes >> 4 * n;
        d[n] = pack_bf16((two & 15u) - z, (two >> 16 & 15u) - z);
    }
}
inline void codes_u4_f16(unsigned* d, unsigned bytes, unsigned zero) {
    const float z = low_f16(zero) - 1024.0f;
    for (int n = 0; n < 4; ++n) {
        const unsigned two = bytes >> 4 * n;
        d[n] = pack_f16((two & 15u) - z, (two >> 16 & 15u) - z);
    }
}
inline void excess_u4_bf16(unsigned* d, unsigned bytes) {
    for (int n = 0; n < 4; ++n, bytes >>= 8) {
        d[n] = pack_bf16((bytes & 15u) + 16.0f, (bytes >> 4 & 15u) + 16.0f);
    }
}
inline void excess_apart_u4_bf16(unsigned* d, unsigned bytes) {
    for (int n = 0; n < 4; ++n, bytes >>= 4) {
        d[n] = pack_bf16((bytes & 15u) + 16.0f, (bytes >> 16 & 15u) + 16.0f);
    }
}
inline void high_codes_first(unsigned* d) {
    const unsigned low = d[0], other = d[2];
    d[0] = d[1], d[1] = low, d[2] = d[3], d[3] = other;
}
inline float code_i8(unsigned bytes, int which) {
    return static_cast<float>(static_cast<signed char>(bytes >> 8 * which));
}
inline void codes_i8_bf16(unsigned* d, unsigned bytes) {
    for (int n = 0; n < 2; ++n) d[n] = pack_bf16(code_i8(bytes, n), code_i8(bytes, n + 2));
}
inline void codes_i8_f16(unsigned* d, unsigned bytes) {
    for (int n = 0; n < 2; ++n) d[n] = pack_f16(code_i8(bytes, n), code_i8(bytes, n + 2));
}
inline float code_e2m1(unsigned code) {
    const float size = code & 7u;
    return copysignf(fmaxf(fmaxf(size / 2, size - 2), 2 * size - 8), code & 8u ? -1.0f : 1.0f);
}
inline void codes_e2m1_bf16(unsigned* d, unsigned bytes) {
    for (int n = 0; n < 4; ++n, bytes >>= 4) d[n] = pack_bf16(code_e2m1(bytes), code_e2m1(bytes >> 16));
}
inline void codes_e2m1_f16(unsigned* d, unsigned bytes) {
    for (int n = 0; n < 4; ++n, bytes >>= 4) d[n] = pack_f16(code_e2m1(bytes), code_e2m1(bytes >> 16));
}
template <int N>
inline void scale_bf16(unsigned* d, float factor) {
    for (int i = 0; i < N; ++i) d[i] = mul_bf16x2(d[i], pack_bf16(factor, factor));
}
template <int N>
inline void scale_f16(unsigned* d, float factor) {
    for (int i = 0; i < N; ++i) d[i] = mul_f16x2(d[i], pack_f16(factor, factor));
}
inline float exp2_fast(float x) { return exp2f(x); }
inline float exp_fast(float x) { return exp2_fast(x * 1.4426950408889634f); }
inline float rsqrt_fast(float x) { return 1.0f / sqrtf(x); }
inline float reciprocal_fast(float x) {
    const float y = 1.0f / x;
    return fabsf(y) < 0x1p-126f ? copysignf(0.0f, y) : y;
}
inline float gelu_fast(float x) {
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
inline float nearest_e4m3(float x) {
    float size = fminf(fabsf(x), 448.0f);
    int exponent = max((__float_as_int(size) >> 23) - 127, -6);
    float place = __int_as_float((exponent + 124) << 23);
    float rounded = copysignf(rintf(size / place) * place, x);
    return x != x ? x : rounded;
}
inline float max_nan(float a, float b) { return a != a || b != b ? __uint_as_float(0x7fffffffu) : fmaxf(a, b); }

// --- threads, memory barriers

void named_barrier(int id, int threads);
void named_arrive(int id, int threads);
inline float shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
inline unsigned shuffle_xor(unsigned x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
inline void swap_with_lane(unsigned& first, unsigned& second, int mask) {
    unsigned& given = threadIdx.x & mask ? first : second;
    given = shuffle_xor(given, mask);
}
void mbarrier_init(unsigned long long* bar, unsigned count);
void mbarrier_fence_init();
void mbarrier_expect(unsigned long long* bar, unsigned bytes);
void mbarrier_arrive(unsigned long long* bar);
void mbarrier_arrive_at(unsigned long long* bar, unsigned rank);
void mbarrier_wait(unsigned long long* bar, unsigned parity);

// --- the copy engine

inline void tma_load_1d(void* to_shared, const TensorMap* map, unsigned long long* bar, int c0) {
    const int at[5] = {c0};
    on_cpu::load_tile(to_shared, map, bar, 1, at);
}
inline void tma_load_1d_evict_first(void* to_shared, const TensorMap* map, unsigned long long* bar, int c0) {
    const int at[5] = {c0};
    on_cpu::load_tile(to_shared, map, bar, 1, at);
}
inline void tma_load_2d(void* to_shared, const TensorMap* map, unsigned long long* bar, int c0, int c1) {
    const int at[5] = {c0, c1};
    on_cpu::load_tile(to_shared, map, bar, 2, at);
}
inline void tma_load_2d_evict_first(void* to_shared, const TensorMap* map, unsigned long long* bar, int c0, int c1) {
    const int at[5] = {c0, c1};
    on_cpu::load_tile(to_shared, map, bar, 2, at);
}
inline void tma_load_3d(void* to_shared, const TensorMap* map, unsigned long long* bar, int c0, int c1, int c2) {
    const int at[5] = {c0, c1, c2};
    on_cpu::load_tile(to_shared, map, bar, 3, at);
}
inline void tma_load_3d_evict_first(void* to_shared, const TensorMap* map, unsigned long long* bar, int c0, int c1, int c2) {
    const int at[5] = {c0, c1, c2};
    on_cpu::load_tile(to_shared, map, bar, 3, at);
}
inline void tma_load_4d(void* to_shared, const TensorMap* map, unsigned long long* bar, int c0, int c1, int c2, int c3) {
    const int at[5] = {c0, c1, c2, c3};
    on_cpu::load_tile(to_shared, map, bar, 4, at);
}
inline void tma_load_4d_evict_first(void* to_shared, const TensorMap* map, unsigned long long* bar, int c0, int c1, int c2, int c3) {
    const int at[5] = {c0, c1, c2, c3};
    on_cpu::load_tile(to_shared, map, bar, 4, at);
}
inline void tma_load_5d(void* to_shared, const TensorMap* map, unsigned long long* bar, int c0, int c1, int c2, int c3, int c4) {
    const int at[5] = {c0, c1, c2, c3, c4};
    on_cpu::load_tile(to_shared, map, bar, 5, at);
}
inline void tma_load_5d_evict_first(void* to_shared, const TensorMap* map, unsigned long long* bar, int c0, int c1, int c2, int c3, int c4) {
    const int at[5] = {c0, c1, c2, c3, c4};
    on_cpu::load_tile(to_shared, map, bar, 5, at);
}
inline void tma_load_im2col_3d(void* to_shared, const TensorMap* map, unsigned long long* bar, int c0, int c1, int c2, int o0) {
    const int at[5] = {c0, c1, c2}, offsets[3] = {o0};
    on_cpu::load_pixels(to_shared, map, bar, 3, at, offsets);
}
inline void tma_load_im2col_4d(void* to_shared, const TensorMap* map, unsigned long long* bar, int c0, int c1, int c2, int c3, int o0, int o1) {
    const int at[5] = {c0, c1, c2, c3}, offsets[3] = {o0, o1};
    on_cpu::load_pixels(to_shared, map, bar, 4, at, offsets);
}
inline void tma_load_im2col_5d(void* to_shared, const TensorMap* map, unsigned long long* bar, int c0, int c1, int c2, int c3, int c4, int o0, int o1, int o2) {
    const int at[5] = {c0, c1, c2, c3, c4}, offsets[3] = {o0, o1, o2};
    on_cpu::load_pixels(to_shared, map, bar, 5, at, offsets);
}
void bulk_load(void* to_shared, const void* from_global, unsigned bytes, unsigned long long* bar);
inline void bulk_load_evict_first(void* to_shared, const void* from_global, unsigned bytes,
                                  unsigned long long* bar) {
    bulk_load(to_shared, from_global, bytes, bar);
}
inline void tma_prefetch(const TensorMap*) {}
inline unsigned long long evict_first_policy() { return 0; }
void fence_async_shared();
inline uint4 load_16_evict_first(const void* p) { return *static_cast<const uint4*>(p); }
inline uint2 load_8_evict_first(const void* p) { return *static_cast<const uint2*>(p); }
inline unsigned load_4_evict_first(const void* p) { return *static_cast<const unsigned*>(p); }
inline void store_16_evict_first(void* p, uint4 x) { *static_cast<uint4*>(p) = x; }

// --- products of a warp group

void wgmma_fence();
void wgmma_commit();
template <int N>
void wgmma_wait() {
    on_cpu::wait_for_products(N);
}
template <int N>
void keep(float (&)[N]) {}
template <int N>
void hand_over(unsigned (&to)[N], const unsigned (&from)[N]) {
    for (int i = 0; i < N; ++i) to[i] = from[i];
}
unsigned long long shared_descriptor(const void* p, unsigned leading_bytes, unsigned stride_bytes,
                                     unsigned swizzle_bytes);
template <int N>
void registers_decrease() {}
template <int N>
void registers_increase() {}

#define ON_CPU_WGMMA_S(NAME, KIND, N, A_TRANSPOSED, B_TRANSPOSED)                                   \
    inline void NAME(float (&d)[N / 2], unsigned long long a, unsigned long long b, bool adds) {    \
        on_cpu::wgmma(on_cpu::KIND, N, d, nullptr, a, A_TRANSPOSED, b, B_TRANSPOSED, adds);         \
    }
#define ON_CPU_WGMMA_R(NAME, KIND, N, A_TRANSPOSED, B_TRANSPOSED)                                   \
    inline void NAME(float (&d)[N / 2], unsigned a0, unsigned a1, unsigned a2, unsigned a3,         \
                     unsigned long long b, bool adds) {                                             \
        const unsigned a[4] = {a0, a1, a2, a3};                                                     \
        on_cpu::wgmma(on_cpu::KIND, N, d, a, 0, A_TRANSPOSED, b, B_TRANSPOSED, adds);               \
    }

// --- clusters

unsigned cluster_rank();
inline void next_kernel_may_start() {}  // kernels run one after the other
template <class P>
void hide_origin(P&) {}
template <class... P>
void wait_for_kernel_before(P&...) {}
void cluster_arrive();
void cluster_wait();
template <class T>
T* in_block(T* p, unsigned rank) {
    return (T*)on_cpu::in_other_block(p, rank);
}
inline unsigned remote_address(const void* local, unsigned rank) { return shared_address(local) | rank << 24; }
inline float load_remote(const float* local, unsigned rank) { return *in_block(local, rank); }
inline float4 load_remote(const float4* local, unsigned rank) { return *in_block(local, rank); }
inline void store_remote(float* local, unsigned rank, float x) { *in_block(local, rank) = x; }
inline void store_remote(float4* local, unsigned rank, float4 x) { *in_block(local, rank) = x; }
