// CUDA's short vectors.
#pragma once

#define ON_CPU_VECTORS(T, NAME)                                            \
    struct alignas(2 * sizeof(T)) NAME##2 { T x, y; };                     \
    struct NAME##3 { T x, y, z; };                                         \
    struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) NAME##4 { T x, y, z, w; }; \
    inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }             \
    inline NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; }     \
    inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }

ON_CPU_VECTORS(int, int)
ON_CPU_VECTORS(unsigned, uint)
ON_CPU_VECTORS(float, float)
ON_CPU_VECTORS(double, double)
ON_CPU_VECTORS(short, short)
ON_CPU_VECTORS(unsigned short, ushort)
ON_CPU_VECTORS(signed char, char)
ON_CPU_VECTORS(unsigned char, uchar)
ON_CPU_VECTORS(long long, longlong)
ON_CPU_VECTORS(unsigned long long, ulonglong)

struct dim3 {
    unsigned x, y, z;
};
