// Asynchronous copies: bytes come when they are waited for, and until then there is NaN.
#pragma once
#include "barriers.h"

namespace on_cpu {

inline void arrive_now(std::vector<Copy>& copies) {
    for (Copy& copy : copies) {
        // The thread has waited: this is a write of its own, which others see after a barrier.
        if (launch.finds_races) {
            const size_t begin = (copy.to - shared) / 2;
            for (size_t g = begin; g < begin + copy.bytes.size() / 2; ++g)
                last[g] = {static_cast<uint16_t>(current - threads.data()), WRITTEN, warp().time, copy.place};
        }
        memcpy(copy.to, copy.bytes.data(), copy.bytes.size());
    }
}

void copy_async(void* to, const void* from, unsigned bytes, bool is_in) {
    check_shared(to, bytes, bytes, "cp.async");
    Copy copy{static_cast<unsigned char*>(to), std::vector<unsigned char>(bytes)};
    if (reinterpret_cast<uintptr_t>(from) % bytes) die("cp.async of %u bytes from a misaligned address", bytes);
    if (is_in) {
        check_source(from, bytes);
        memcpy(copy.bytes.data(), from, bytes);
    }
    copy.place = __builtin_return_address(0);
    if (launch.finds_races)
        note_write(to, bytes, static_cast<int>(current - threads.data()), ON_ITS_WAY, copy.place);
    memset(to, 0xff, bytes);
    current->open_copies.push_back(std::move(copy));
}

void wait_for_copies(int left) {
    auto& groups = current->copy_groups;
    while (static_cast<int>(groups.size()) > left) {
        arrive_now(groups.front());
        groups.pop_front();
    }
}

// Where the copy engine puts a byte: 16-byte chunks trade places with those of other rows.
inline unsigned swizzled(unsigned address, unsigned swizzle_bytes) {
    const unsigned bits = swizzle_bytes == 128 ? 0x70 : swizzle_bytes == 64 ? 0x30 : swizzle_bytes == 32 ? 0x10 : 0;
    return address ^ (address >> 3 & bits);
}

inline void check_map(const TensorMap& map) {
    const unsigned row = map.box[0] * map.element_bytes, s = map.swizzle_bytes;
    if (s != 0 && s != 32 && s != 64 && s != 128) die("tensor map: swizzle of %u bytes", s);
    if (row % 16) die("tensor map: rows of the box have %u bytes, no multiple of 16", row);
    if (s && row != s) die("tensor map: rows of the box have %u bytes and the swizzle %u", row, s);
    if (reinterpret_cast<uintptr_t>(map.address) % 16) die("tensor map: address is no multiple of 16");
    for (unsigned i = 0; i < map.rank; ++i) {
        if (map.box[i] < 1 || map.box[i] > 256) die("tensor map: a box of %u elements", map.box[i]);
        if (i && map.strides_bytes[i] % 16) die("tensor map: a stride of %llu bytes, no multiple of 16", map.strides_bytes[i]);
    }
}

void load_tile(void* to_shared, const TensorMap* map, unsigned long long* bar, int axes, const int* at) {
    if (static_cast<int>(map->rank) != axes) die("tma_load_%dd of a tensor map of %u axes", axes, map->rank);
    check_map(*map);
    size_t bytes = map->element_bytes;
    unsigned box[5] = {1, 1, 1, 1, 1};
    for (int i = 0; i < axes; ++i) bytes *= box[i] = map->box[i];
    check_shared(to_shared, bytes, 128, "tma_load");
    Copy copy{static_cast<unsigned char*>(to_shared), std::vector<unsigned char>(bytes)};
    const unsigned start = shared_address(to_shared);
    if (map->swizzle_bytes && start % (8 * map->swizzle_bytes))
        die("tma_load to %ld of shared memory: with a swizzle of %u bytes a tile begins at multiples of %u",
            shared_offset(to_shared), map->swizzle_bytes, 8 * map->swizzle_bytes);
    unsigned place = start;
    unsigned i[5];
    for (i[4] = 0; i[4] < box[4]; ++i[4])
        for (i[3] = 0; i[3] < box[3]; ++i[3])
            for (i[2] = 0; i[2] < box[2]; ++i[2])
                for (i[1] = 0; i[1] < box[1]; ++i[1])
                    for (i[0] = 0; i[0] < box[0]; ++i[0], place += map->element_bytes) {
                        const unsigned char* from = map->address;
                        bool is_in = true;
                        for (int a = 0; a < axes; ++a) {
                            const long c = static_cast<long>(at[a]) + i[a];
                            is_in &= c >= 0 && c < static_cast<long>(map->shape[a]);
                            from += c * static_cast<long>(a ? map->strides_bytes[a] : map->element_bytes);
                        }
                        if (!is_in) continue;
                        check_source(from, map->element_bytes);
                        memcpy(&copy.bytes[swizzled(place, map->swizzle_bytes) - start], from, map->element_bytes);
                    }
    report_copy(bar, std::move(copy), __builtin_return_address(0));
}

}  // namespace on_cpu

void cp_async_commit() {
    current->copy_groups.push_back(std::move(current->open_copies));
    current->open_copies.clear();
}

void bulk_load(void* to_shared, const void* from_global, unsigned bytes, unsigned long long* bar) {
    if (bytes % 16) die("bulk_load of %u bytes, no multiple of 16", bytes);
    if (reinterpret_cast<uintptr_t>(from_global) % 16) die("bulk_load from a misaligned address");
    check_shared(to_shared, bytes, 16, "bulk_load");
    check_source(from_global, bytes);
    const unsigned char* from = static_cast<const unsigned char*>(from_global);
    report_copy(bar, {static_cast<unsigned char*>(to_shared), std::vector<unsigned char>(from, from + bytes)},
                __builtin_return_address(0));
}

void fence_async_shared() {
    current->fenced = warp().time++;
    mbarrier_fence_init();
}
