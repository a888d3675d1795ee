// Products of a warp group (wgmma): they happen when they are waited for, and until then the sums are
// NaN. Descriptors and layouts of shared memory: PTX ISA, "Asynchronous Warpgroup Level Matrix
// Shared Memory Layout".
#pragma once
#include "copies.h"
#include "products.h"

namespace on_cpu {

struct WgmmaArguments {
    float* d;
    const unsigned* a;
    unsigned long long a_descriptor, b_descriptor;
    bool adds;
};

struct Pending {
    Kind kind;
    int n;
    float* d[128];
    unsigned a[128][4];
    bool a_is_in_registers, a_is_transposed, b_is_transposed, adds;
    unsigned long long a_descriptor, b_descriptor;
    unsigned char* shared;  // of the block
    const void* place;      // in the kernel's code
};

// Sums of products under way: what the registers would hold.
struct Sums {
    float* key;  // the first thread's
    std::vector<float> values;
    int uses = 0;
};

struct WarpGroup {
    Meeting meeting;
    std::vector<Pending> open;
    std::deque<std::vector<Pending>> groups;
    std::vector<Sums> sums;
    bool has_fence = false;
};

inline std::vector<WarpGroup> warp_groups;  // of the cluster, block by block

inline int groups_of_block() { return (warps_of_block() + 3) / 4; }

// The current thread's warp in its block.
inline int warp_in_block() { return current->warp - current->block * warps_of_block(); }

inline WarpGroup& warp_group() {
    const bool is_whole = warp_in_block() / 4 * 4 + 4 <= warps_of_block();
    if (!is_whole) die("a warp group has 128 threads, and the block %d", launch.threads);
    return warp_groups[current->block * groups_of_block() + warp_in_block() / 4];
}

// A matrix that a descriptor names: rows along M or N, columns along K.
struct Described {
    unsigned start, leading, stride, swizzle, bytes;  // of an element
    bool is_transposed;
    unsigned char* shared;
    const void* place;  // of the product in the kernel's code

    Described(Kind kind, unsigned long long bits, bool transposed, unsigned char* of_block, const void* in_code)
        : start(static_cast<unsigned>(bits & 0x3fff) << 4),
          leading(static_cast<unsigned>(bits >> 16 & 0x3fff) << 4),
          stride(static_cast<unsigned>(bits >> 32 & 0x3fff) << 4),
          swizzle((bits >> 62) == 1 ? 128 : (bits >> 62) == 2 ? 64 : (bits >> 62) == 3 ? 32 : 0),
          bytes(kind == F8E4M3 ? 1 : kind == TF32 ? 4 : 2),
          is_transposed(transposed),
          shared(of_block),
          place(in_code) {
        if (bits >> 49 & 7) die("a descriptor with a base offset is not known here");
    }

    const unsigned char* at(unsigned row, unsigned k) const {
        unsigned address = start;
        const unsigned chunk = swizzle / 16;  // chunks of 16 bytes in a row of the pattern
        if (!is_transposed) {
            const unsigned along = k * bytes;
            address += row / 8 * stride + along % 16;
            address += swizzle ? row % 8 * swizzle + along / 16 * 16 : row % 8 * 16 + along / 16 * leading;
        } else if (swizzle) {
            address += row / 8 % chunk * 16 + row / 8 / chunk * leading + row % 8 * 2;
            address += k % 8 * swizzle + k / 8 * stride;
        } else {
            address += row % 8 * 2 + row / 8 * stride + k % 8 * 16 + k / 8 * leading;
        }
        address = swizzled(address, swizzle);
        return shared + (address - SHARED_START);
    }

    void read(Kind kind, int rows, std::vector<float>& out) const {
        const int depth = 32 / bytes;
        out.resize(rows * depth);
        for (int r = 0; r < rows; ++r)
            for (int k = 0; k < depth; ++k) {
                const unsigned char* p = at(r, k);
                uint32_t bits = 0;
                check_place(p, bytes, "wgmma");
                memcpy(&bits, p, bytes);
                out[r * depth + k] = number(kind, bits);
                if (launch.finds_races) note(p);
            }
    }

    // Reads by the tensor cores need what the copy engine brought, or a fence after the write.
    void note(const unsigned char* p) const {
        const Last& w = last[(p - on_cpu::shared) / 2];
        if (w.state == WRITTEN && w.time >= first_time && threads[w.thread].fenced < w.time)
            die("wgmma reads at %ld of shared memory what block %d, thread %d wrote: fence_async_shared is "
                "missing between its write and the barrier @ %p\n  the product @ %p\n  now", shared_offset(p),
                first_block + threads[w.thread].block, threads[w.thread].number, w.place, place);
        const int base = current->warp - warp_in_block() % 4;
        for (int i = base; i < base + 4; ++i) note_read(p, bytes, i, -1, place);
    }
};

inline Sums& sums_of(WarpGroup& group, const Pending& p) {
    for (Sums& s : group.sums)
        if (s.key == p.d[0]) return s;
    group.sums.push_back({p.d[0], std::vector<float>(128 * (p.n / 2))});
    Sums& s = group.sums.back();
    for (int i = 0; i < 128; ++i)
        for (int j = 0; j < p.n / 2; ++j) {
            s.values[i * (p.n / 2) + j] = p.d[i][j];
            p.d[i][j] = __uint_as_float(0xffffffffu);
        }
    return s;
}

inline void execute(WarpGroup& group, const Pending& p) {
    const int depth = p.kind == F8E4M3 ? 32 : p.kind == TF32 ? 8 : 16;
    if (p.kind == TF32 && p.a_is_in_registers) die("wgmma of TF32 with rows in registers is not known here");
    std::vector<float> A(64 * depth), B;
    if (p.a_is_in_registers) {
        for (int i = 0; i < 128; ++i)
            for (int r = 0; r < 4; ++r)
                for (int h = 0; h < 2; ++h)
                    A[(i / 32 * 16 + i % 32 / 4 + r % 2 * 8) * 16 + i % 4 * 2 + h + r / 2 * 8] =
                        number(p.kind, p.a[i][r] >> 16 * h);
    } else {
        Described(p.kind, p.a_descriptor, p.a_is_transposed, p.shared, p.place).read(p.kind, 64, A);
    }
    Described(p.kind, p.b_descriptor, p.b_is_transposed, p.shared, p.place).read(p.kind, p.n, B);
    Sums& sums = sums_of(group, p);
    const int count = p.n / 2;
    for (int i = 0; i < 128; ++i)
        for (int j = 0; j < count; ++j) {
            const int row = i / 32 * 16 + i % 32 / 4 + j / 2 % 2 * 8;
            const int column = j / 4 * 8 + i % 4 * 2 + j % 2;
            double sum = 0;
            for (int k = 0; k < depth; ++k)
                sum += static_cast<double>(A[row * depth + k]) * static_cast<double>(B[column * depth + k]);
            float& x = sums.values[i * count + j];
            x = static_cast<float>((p.adds ? static_cast<double>(x) : 0.0) + sum);
        }
    if (--sums.uses) return;
    for (int i = 0; i < 128; ++i)
        for (int j = 0; j < count; ++j) p.d[i][j] = sums.values[i * count + j];
    sums = group.sums.back();
    group.sums.pop_back();
}

void wgmma(Kind kind, int n, float* d, const unsigned* a_registers, unsigned long long a,
           bool a_is_transposed, unsigned long long b, bool b_is_transposed, bool adds) {
    WarpGroup& group = warp_group();
    if (!group.has_fence) die("wgmma without a wgmma_fence before the first");
    WgmmaArguments mine{d, a_registers, a, b, adds};
    const void* place = __builtin_return_address(0);
    meet(group.meeting, 128, "wgmma of n " + std::to_string(n), &mine, [&](void** all) {
        const WgmmaArguments& first = *static_cast<WgmmaArguments*>(all[0]);
        Pending p{};
        p.kind = kind;
        p.n = n;
        p.a_is_in_registers = a_registers != nullptr;
        p.a_is_transposed = a_is_transposed;
        p.b_is_transposed = b_is_transposed;
        p.adds = first.adds;
        p.a_descriptor = first.a_descriptor;
        p.b_descriptor = first.b_descriptor;
        p.shared = shared_of_block(current->block);
        p.place = place;
        for (int i = 0; i < 128; ++i) {
            const WgmmaArguments& one = *static_cast<WgmmaArguments*>(all[i]);
            if (one.a_descriptor != first.a_descriptor || one.b_descriptor != first.b_descriptor ||
                one.adds != first.adds)
                die("wgmma: descriptors or flags differ between threads of the warp group");
            p.d[i] = one.d;
            if (one.a) memcpy(p.a[i], one.a, 16);
        }
        ++sums_of(group, p).uses;
        group.open.push_back(p);
    });
}

void wait_for_products(int left) {
    WarpGroup& group = warp_group();
    meet(group.meeting, 128, "wgmma_wait<" + std::to_string(left) + ">", nullptr, [&](void**) {
        while (static_cast<int>(group.groups.size()) > left) {
            for (const Pending& p : group.groups.front()) execute(group, p);
            group.groups.pop_front();
        }
    });
}

// What must not be under way when a block ends: its shared memory goes to another one.
inline void check_end() {
    for (auto& [bar, b] : mbarriers)
        if (!b.copies.empty()) {
            const long place = shared_offset(bar);
            die("a block of the cluster from %d on has ended while the copy engine still brings bytes for the "
                "barrier at %ld of shared memory: nobody has waited there @ %p", first_block, place,
                b.copies[0].place);
        }
    for (const WarpGroup& group : warp_groups)
        if (!group.open.empty() || !group.groups.empty())
            die("a block of the cluster from %d on has ended with products of a warp group under way", first_block);
}

}  // namespace on_cpu

void wgmma_fence() { warp_group().has_fence = true; }

void wgmma_commit() {
    WarpGroup& group = warp_group();
    meet(group.meeting, 128, "wgmma_commit", nullptr, [&](void**) {
        group.groups.push_back(std::move(group.open));
        group.open.clear();
    });
}

unsigned shared_address(const void* p) {
    if (!is_shared(p)) die("shared_address of an address that is not in shared memory");
    if (p < shared_of_block(current->block) || p >= shared_of_block(current->block + 1))
        die("shared_address of another block's memory");
    return SHARED_START + static_cast<unsigned>(shared_offset(p));
}

unsigned long long shared_descriptor(const void* p, unsigned leading_bytes, unsigned stride_bytes,
                                     unsigned swizzle_bytes) {
    const unsigned long long mode =
        swizzle_bytes == 128 ? 1 : swizzle_bytes == 64 ? 2 : swizzle_bytes == 32 ? 3 : 0;
    const unsigned start = shared_address(p);
    if ((start | leading_bytes | stride_bytes) % 16)
        die("shared_descriptor: start %u and steps %u and %u must be multiples of 16", start, leading_bytes,
            stride_bytes);
    return ((start & 0x3ffffu) >> 4) | static_cast<unsigned long long>((leading_bytes & 0x3ffffu) >> 4) << 16 |
           static_cast<unsigned long long>((stride_bytes & 0x3ffffu) >> 4) << 32 | mode << 62;
}
