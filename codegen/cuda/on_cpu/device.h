// What an emitted kernel sees on a CPU: the language of CUDA, and the functions of ../prelude.
#pragma once
// Reading the C++ form of <math.h> was half of compiling a kernel. Emitted text says expf, not exp:
// the C form is enough.
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <math.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS

#include "numbers.h"
#include "vectors.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n) alignas(n)

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

// How the copy engine sees a tensor; axes from the contiguous one.
struct alignas(64) TensorMap {
    const unsigned char* address;
    unsigned rank, element_bytes, swizzle_bytes;
    unsigned box[5], steps[5];
    unsigned rounds;      // float32 to the nearest numbers of TF32
    unsigned moved_axes;  // of pixels in windows: those between channels and the image's number
    int corners[3];
    unsigned long long shape[5], strides_bytes[5];
};

namespace on_cpu {

unsigned char* dynamic_shared();
void sync_threads();
void sync_warp(unsigned mask);
unsigned long long shuffled(unsigned long long value, int source, unsigned mask);
unsigned ballot(bool vote, unsigned mask);
void copy_async(void* to, const void* from, unsigned bytes, bool is_in);
void wait_for_copies(int left);
void load_matrices(unsigned* out, int count, bool transposed, const void* row);
void store_matrices(const unsigned* in, int count, bool transposed, void* row);
enum Kind { F16, BF16, TF32, F8E4M3 };
void multiply(Kind kind, float* const d[4], const unsigned a[4], const unsigned b[2]);
void load_tile(void* to, const TensorMap* map, unsigned long long* bar, int axes, const int* at);
void load_pixels(void* to, const TensorMap* map, unsigned long long* bar, int axes, const int* at, const int* offsets);
void wgmma(Kind kind, int n, float* d, const unsigned* a_registers, unsigned long long a,
           bool a_is_transposed, unsigned long long b, bool b_is_transposed, bool adds);
void wait_for_products(int left);
void* in_other_block(const void* p, unsigned rank);
void will_add(void* p, unsigned bytes);
[[noreturn]] void trap();

template <class T>
T shuffle(T value, int source, unsigned mask) {
    static_assert(sizeof(T) <= 8, "a lane gives at most 8 bytes");
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = shuffled(bits, source, mask);
    memcpy(&value, &bits, sizeof(T));
    return value;
}

// Whatever the order of additions, none is lost: they are no race.
template <class T>
__attribute__((noinline, no_sanitize("thread"))) T added(T* place, T value) {
    will_add(place, sizeof(T));
    T old;
    memcpy(&old, place, sizeof(T));
    *place = static_cast<T>(old + value);
    return old;
}

inline int lane() { return static_cast<int>(threadIdx.x % 32); }

}  // namespace on_cpu

#include "intrinsics.h"
#include "prelude.h"
