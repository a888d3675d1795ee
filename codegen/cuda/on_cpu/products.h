// What the 32 lanes of a warp do together: shuffles, matrices of 8x8, products on tensor cores.
// Which lane holds which element: PTX ISA, "Matrix Fragments for mma.m16n8k16" and "ldmatrix".
#pragma once
#include "memory.h"

namespace on_cpu {

struct Shuffle {
    unsigned long long value, result;
    int source;
};

inline void whole_warp(unsigned mask, const char* what) {
    if (mask != 0xffffffffu) die("%s of a part of the warp (mask %08x) is not known here", what, mask);
}

unsigned long long shuffled(unsigned long long value, int source, unsigned mask) {
    whole_warp(mask, "a shuffle");
    Shuffle mine{value, 0, source};
    meet(warp().meeting, 32, "a shuffle", &mine, [](void** all) {
        for (int i = 0; i < 32; ++i) {
            Shuffle& one = *static_cast<Shuffle*>(all[i]);
            one.result = static_cast<Shuffle*>(all[one.source & 31])->value;
        }
    });
    return mine.result;
}

unsigned ballot(bool vote, unsigned mask) {
    whole_warp(mask, "a vote");
    unsigned long long mine[2] = {vote, 0};
    meet(warp().meeting, 32, "a vote", mine, [](void** all) {
        unsigned long long votes = 0;
        for (int i = 0; i < 32; ++i) votes |= *static_cast<unsigned long long*>(all[i]) << i;
        for (int i = 0; i < 32; ++i) static_cast<unsigned long long*>(all[i])[1] = votes;
    });
    return static_cast<unsigned>(mine[1]);
}

struct Matrices {
    unsigned* registers;
    unsigned char* row;
};

inline uint16_t element(const Matrices* rows, int matrix, int row, int column) {
    uint16_t x;
    memcpy(&x, rows[matrix * 8 + row].row + 2 * column, 2);
    return x;
}

void load_matrices(unsigned* out, int count, bool transposed, const void* row) {
    Matrices mine{out, static_cast<unsigned char*>(const_cast<void*>(row))};
    if (lane() < 8 * count) check_shared(row, 16, 16, "ldmatrix");
    if (launch.finds_races && lane() < 8 * count)
        note_read(row, 16, current->warp, static_cast<int>(current - threads.data()),
                  __builtin_return_address(0));
    meet(warp().meeting, 32, std::string("ldmatrix_x") + char('0' + count) + (transposed ? "_trans" : ""),
         &mine, [=](void** all) {
        Matrices rows[32];
        for (int i = 0; i < 32; ++i) rows[i] = *static_cast<Matrices*>(all[i]);
        for (int m = 0; m < count; ++m)
            for (int i = 0; i < 32; ++i) {
                const int r = i / 4, c = i % 4 * 2;
                const unsigned low = transposed ? element(rows, m, c, r) : element(rows, m, r, c);
                const unsigned high = transposed ? element(rows, m, c + 1, r) : element(rows, m, r, c + 1);
                rows[i].registers[m] = low | high << 16;
            }
    });
}

void store_matrices(const unsigned* in, int count, bool transposed, void* row) {
    Matrices mine{const_cast<unsigned*>(in), static_cast<unsigned char*>(row)};
    check_shared(row, 16, 16, "stmatrix");
    if (launch.finds_races) 
        note_write(row, 16, static_cast<int>(current - threads.data()), WRITTEN,
                   __builtin_return_address(0));
    meet(warp().meeting, 32, std::string("stmatrix_x") + char('0' + count) + (transposed ? "_trans" : ""),
         &mine, [=](void** all) {
        Matrices rows[32];
        for (int i = 0; i < 32; ++i) rows[i] = *static_cast<Matrices*>(all[i]);
        for (int m = 0; m < count; ++m)
            for (int i = 0; i < 32; ++i)
                for (int h = 0; h < 2; ++h) {
                    const int r = i / 4, c = i % 4 * 2 + h;
                    const uint16_t x = static_cast<uint16_t>(rows[i].registers[m] >> 16 * h);
                    memcpy(rows[m * 8 + (transposed ? c : r)].row + 2 * (transposed ? r : c), &x, 2);
                }
    });
}

inline float half_table[1 << 16];

inline void make_half_table() {
    for (unsigned i = 0; i < 1u << 16; ++i) half_table[i] = float_of_half(i);
}

// Of float8 e4m3, which has no infinity.
inline float float_of_byte(unsigned bits) {
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    if ((bits & 0x7f) == 0x7f) return __uint_as_float(0x7fc00000u);
    const float size = exponent ? ldexp(8.0f + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return bits & 0x80 ? -size : size;
}

inline float number(Kind kind, unsigned bits) {
    if (kind == F8E4M3) return float_of_byte(bits & 0xffu);
    if (kind == TF32) return __uint_as_float(bits & 0xffffe000u);
    return kind == F16 ? half_table[bits & 0xffffu] : float_of_bfloat(bits & 0xffffu);
}

struct Product {
    float* const* d;
    const unsigned *a, *b;
};

void multiply(Kind kind, float* const d[4], const unsigned a[4], const unsigned b[2]) {
    Product mine{d, a, b};
    static const char* const names[] = {"mma_f16", "mma_bf16", "mma_tf32"};
    meet(warp().meeting, 32, names[kind], &mine, [=](void** all) {
        float A[16][16], B[16][8];
        const int depth = kind == TF32 ? 8 : 16;
        for (int i = 0; i < 32; ++i) {
            const Product& one = *static_cast<Product*>(all[i]);
            const int g = i / 4, t = i % 4;
            if (kind == TF32) {
                for (int r = 0; r < 4; ++r)
                    A[g + r % 2 * 8][t + r / 2 * 4] = __uint_as_float(one.a[r] & 0xffffe000u);
                for (int r = 0; r < 2; ++r) B[t + r * 4][g] = __uint_as_float(one.b[r] & 0xffffe000u);
                continue;
            }
            for (int h = 0; h < 2; ++h) {
                for (int r = 0; r < 4; ++r)
                    A[g + r % 2 * 8][2 * t + h + r / 2 * 8] = number(kind, one.a[r] >> 16 * h);
                for (int r = 0; r < 2; ++r) B[2 * t + h + r * 8][g] = number(kind, one.b[r] >> 16 * h);
            }
        }
        for (int i = 0; i < 32; ++i)
            for (int r = 0; r < 4; ++r) {
                const int row = i / 4 + r / 2 * 8, column = i % 4 * 2 + r % 2;
                double sum = 0;
                for (int k = 0; k < depth; ++k)
                    sum += static_cast<double>(A[row][k]) * static_cast<double>(B[k][column]);
                float& x = *static_cast<Product*>(all[i])->d[r];
                x = static_cast<float>(static_cast<double>(x) + sum);
            }
    });
}

}  // namespace on_cpu
