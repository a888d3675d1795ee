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
    if (map.rounds && map.element_bytes != 4) die("tensor map: TF32 has 4 bytes, and an element %u", map.element_bytes);
    if (row % 16) die("tensor map: rows of the box have %u bytes, no multiple of 16", row);
    if (s && row != s) die("tensor map: rows of the box have %u bytes and the swizzle %u", row, s);
    if (reinterpret_cast<uintptr_t>(map.address) % 16) die("tensor map: address is no multiple of 16");
    for (unsigned i = 0; i < map.rank; ++i) {
        const unsigned most = map.moved_axes && i == 1 ? 1024 : 256;
        if ((!map.moved_axes || i < 2) && (map.box[i] < 1 || map.box[i] > most))
            die("tensor map: a box of %u elements", map.box[i]);
        if (map.steps[i] < 1 || map.steps[i] > 8) die("tensor map: a step of %u elements", map.steps[i]);
        if (i && map.strides_bytes[i] % 16) die("tensor map: a stride of %llu bytes, no multiple of 16", map.strides_bytes[i]);
    }
}

// A tile on its way to shared memory: elements one after the other, each at its swizzled place.
struct Arriving {
    const TensorMap& map;
    Copy copy;
    unsigned start, place;

    Arriving(void* to_shared, const TensorMap* of, size_t elements) : map(*of) {
        check_map(map);
        const size_t bytes = elements * map.element_bytes;
        check_shared(to_shared, bytes, 128, "tma_load");
        copy = {static_cast<unsigned char*>(to_shared), std::vector<unsigned char>(bytes)};
        place = start = shared_address(to_shared);
        if (map.swizzle_bytes && start % (8 * map.swizzle_bytes))
            die("tma_load to %ld of shared memory: with a swizzle of %u bytes a tile begins at multiples of %u",
                shared_offset(to_shared), map.swizzle_bytes, 8 * map.swizzle_bytes);
    }

    // The next element: the one at these coordinates, or zero outside of the tensor.
    void add(const long* at) {
        const unsigned char* from = map.address;
        bool is_in = true;
        for (unsigned a = 0; a < map.rank; ++a) {
            is_in &= at[a] >= 0 && at[a] < static_cast<long>(map.shape[a]);
            from += at[a] * static_cast<long>(a ? map.strides_bytes[a] : map.element_bytes);
        }
        if (is_in) {
            check_source(from, map.element_bytes);
            unsigned char* to = &copy.bytes[swizzled(place, map.swizzle_bytes) - start];
            memcpy(to, from, map.element_bytes);
            if (map.rounds) {
                unsigned bits;
                memcpy(&bits, to, 4);
                if ((bits & 0x7f800000u) != 0x7f800000u) bits += 0x1000u;
                bits &= 0xffffe000u;
                memcpy(to, &bits, 4);
            }
        }
        place += map.element_bytes;
    }
};

void load_tile(void* to_shared, const TensorMap* map, unsigned long long* bar, int axes, const int* at) {
    if (static_cast<int>(map->rank) != axes || map->moved_axes)
        die("tma_load_%dd of a tensor map of %u axes", axes, map->rank);
    unsigned box[5] = {1, 1, 1, 1, 1};
    size_t elements = 1;
    for (int i = 0; i < axes; ++i) elements *= box[i] = (map->box[i] + map->steps[i] - 1) / map->steps[i];
    Arriving tile(to_shared, map, elements);
    unsigned i[5];
    for (i[4] = 0; i[4] < box[4]; ++i[4])
        for (i[3] = 0; i[3] < box[3]; ++i[3])
            for (i[2] = 0; i[2] < box[2]; ++i[2])
                for (i[1] = 0; i[1] < box[1]; ++i[1])
                    for (i[0] = 0; i[0] < box[0]; ++i[0]) {
                        long c[5];
                        for (int a = 0; a < axes; ++a) c[a] = static_cast<long>(at[a]) + i[a] * map->steps[a];
                        tile.add(c);
                    }
    report_copy(bar, std::move(tile.copy), __builtin_return_address(0));
}

// Pixels of windows: their places go along the lines of the bounding box, then to the next image.
void load_pixels(void* to_shared, const TensorMap* map, unsigned long long* bar, int axes, const int* at,
                 const int* offsets) {
    const int moved = static_cast<int>(map->moved_axes);
    if (static_cast<int>(map->rank) != axes || moved != axes - 2)
        die("tma_load_im2col_%dd of a tensor map of %u axes, %d of them of places", axes, map->rank, moved);
    static const int bits[] = {0, 16, 8, 5};
    Arriving tile(to_shared, map, static_cast<size_t>(map->box[0]) * map->box[1]);
    long place[5], last[5];
    for (int a = 0; a < axes; ++a) place[a] = at[a];
    for (int a = 1; a <= moved; ++a) {
        last[a] = static_cast<long>(map->shape[a]) - 1 + map->corners[a - 1];
        if (map->corners[a - 1] < -(1 << (bits[moved] - 1)) || map->corners[a - 1] >= 1 << (bits[moved] - 1))
            die("tensor map: a corner of the bounding box at %d", map->corners[a - 1]);
        if (offsets[a - 1] < 0 || offsets[a - 1] >= 1 << bits[moved]) die("tma_load_im2col: an offset of %d", offsets[a - 1]);
        if (place[a] < 0 || place[a] > last[a]) die("tma_load_im2col: place %ld is not in the bounding box", place[a]);
    }
    for (unsigned pixel = 0; pixel < map->box[1]; ++pixel) {
        long c[5];
        for (int a = 0; a < axes; ++a) c[a] = place[a] + (1 <= a && a <= moved ? offsets[a - 1] : 0);
        for (unsigned i = 0; i < map->box[0]; ++i, ++c[0]) tile.add(c);
        int a = 1;
        for (; a <= moved; ++a) {
            if ((place[a] += map->steps[a]) <= last[a]) break;
            place[a] = 0;
        }
        if (a > moved) ++place[axes - 1];
    }
    report_copy(bar, std::move(tile.copy), __builtin_return_address(0));
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
