// CUDA's own device functions.
#pragma once

inline void __syncthreads() { on_cpu::sync_threads(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { on_cpu::sync_warp(mask); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __trap() { on_cpu::trap(); }

template <class T>
T __shfl_sync(unsigned mask, T x, int source, int width = 32) {
    const int lane = on_cpu::lane();
    return on_cpu::shuffle(x, (lane & ~(width - 1)) + (source & (width - 1)), mask);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T x, int bits, int width = 32) {
    const int lane = on_cpu::lane(), source = lane ^ bits;
    return on_cpu::shuffle(x, (source | (width - 1)) == (lane | (width - 1)) ? source : lane, mask);
}
template <class T>
T __shfl_down_sync(unsigned mask, T x, int distance, int width = 32) {
    const int lane = on_cpu::lane(), source = lane + distance;
    return on_cpu::shuffle(x, (source | (width - 1)) == (lane | (width - 1)) ? source : lane, mask);
}
template <class T>
T __shfl_up_sync(unsigned mask, T x, int distance, int width = 32) {
    const int lane = on_cpu::lane(), source = lane - distance;
    const bool is_in = source >= 0 && (source | (width - 1)) == (lane | (width - 1));
    return on_cpu::shuffle(x, is_in ? source : lane, mask);
}
inline unsigned __ballot_sync(unsigned mask, int vote) { return on_cpu::ballot(vote != 0, mask); }
inline int __any_sync(unsigned mask, int vote) { return on_cpu::ballot(vote != 0, mask) != 0; }
inline int __all_sync(unsigned mask, int vote) { return on_cpu::ballot(vote == 0, mask) == 0; }

#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
inline float __fdividef(float x, float y) { return x / y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
// Never contracted to an fma, so never inlined.
#define ON_CPU_ROUNDED __attribute__((noinline)) inline
ON_CPU_ROUNDED float __fadd_rn(float x, float y) { return x + y; }
ON_CPU_ROUNDED float __fsub_rn(float x, float y) { return x - y; }
ON_CPU_ROUNDED float __fmul_rn(float x, float y) { return x * y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __saturatef(float x) { return x > 1.0f ? 1.0f : x > 0.0f ? x : 0.0f; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline int __float_as_int(float x) { return static_cast<int>(__float_as_uint(x)); }
inline float __int_as_float(int x) { return __uint_as_float(static_cast<unsigned>(x)); }
inline int __float2int_rn(float x) { return static_cast<int>(nearbyintf(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }

#define ON_CPU_ORDER(T)                                 \
    inline T min(T a, T b) { return b < a ? b : a; }    \
    inline T max(T a, T b) { return a < b ? b : a; }
ON_CPU_ORDER(int)
ON_CPU_ORDER(unsigned)
ON_CPU_ORDER(long long)
ON_CPU_ORDER(unsigned long long)
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

template <class T>
T __ldg(const T* p) { return *p; }
template <class T>
T __ldcs(const T* p) { return *p; }
template <class T>
T __ldcg(const T* p) { return *p; }
template <class T>
void __stcs(T* p, T x) { *p = x; }
template <class T>
void __stcg(T* p, T x) { *p = x; }

inline float atomicAdd(float* p, float x) { return on_cpu::added(p, x); }
inline double atomicAdd(double* p, double x) { return on_cpu::added(p, x); }
inline int atomicAdd(int* p, int x) { return on_cpu::added(p, x); }
inline unsigned atomicAdd(unsigned* p, unsigned x) { return on_cpu::added(p, x); }
inline __half atomicAdd(__half* p, __half x) { return on_cpu::added(p, x); }
inline __nv_bfloat16 atomicAdd(__nv_bfloat16* p, __nv_bfloat16 x) { return on_cpu::added(p, x); }
inline __half2 atomicAdd(__half2* p, __half2 x) {
    return {on_cpu::added(&p->x, x.x), on_cpu::added(&p->y, x.y)};
}
inline __nv_bfloat162 atomicAdd(__nv_bfloat162* p, __nv_bfloat162 x) {
    return {on_cpu::added(&p->x, x.x), on_cpu::added(&p->y, x.y)};
}
inline float2 atomicAdd(float2* p, float2 x) {
    return {on_cpu::added(&p->x, x.x), on_cpu::added(&p->y, x.y)};
}
inline float4 atomicAdd(float4* p, float4 x) {
    return {on_cpu::added(&p->x, x.x), on_cpu::added(&p->y, x.y), on_cpu::added(&p->z, x.z),
            on_cpu::added(&p->w, x.w)};
}
