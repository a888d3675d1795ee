// Shared and global memory: what lies where, who touched it last, and which accesses are wrong.
//
// Kernels are compiled with the instrumentation of ThreadSanitizer, whose functions are defined here:
// they see every access. Two accesses of shared memory by different warps, one of them a write, must
// be ordered by barriers ("happens before" with a vector of times for each warp, as in FastTrack,
// Flanagan and Freund 2009); so must a read of what another lane of the same warp wrote.
#pragma once
#include <stdint.h>
#include <string.h>

#include "machine.h"

namespace on_cpu {

// Room of one block's shared memory, and where it begins in the addresses of instructions.
constexpr size_t SHARED_ROOM = 256 << 10;
constexpr unsigned SHARED_START = 1024;
constexpr size_t GUARD_BYTES = 64 << 10;

enum State : uint16_t { UNTOUCHED, WRITTEN, BY_COPY_ENGINE, ON_ITS_WAY };

// The last write of two bytes.
struct Last {
    uint16_t thread;  // in the cluster
    uint16_t state;
    uint32_t time;
    const void* place;  // in the kernel's code
};

// The last reads of two bytes by a warp.
struct Read {
    uint32_t time;
    uint32_t lanes;
    const void* place;
};

struct Tensor {
    std::string name;
    unsigned char* begin = nullptr;
    size_t bytes = 0;
    bool is_input = false;
};

inline unsigned char *shared = nullptr, *global = nullptr;
inline size_t shared_room = 0, global_room = 0;
inline Last* last = nullptr;        // of each two bytes of shared memory
inline Read* reads = nullptr;       // of each two bytes, and each warp
inline uint32_t first_time = 1;     // of this cluster
inline std::vector<Tensor> tensors;

inline unsigned char* reserve(size_t bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) die("no room for %zu bytes", bytes);
    return static_cast<unsigned char*>(at);
}

inline unsigned char* shared_of_block(int block) { return shared + SHARED_ROOM * block; }
inline bool is_shared(const void* p) {
    return static_cast<size_t>(static_cast<const unsigned char*>(p) - shared) < shared_room;
}
inline long shared_offset(const void* p) {
    return static_cast<long>((static_cast<const unsigned char*>(p) - shared) % SHARED_ROOM);
}

inline bool comes_before(int warp_then, uint32_t time, int warp_now) {
    return warp_then == warp_now || time < first_time || warps[warp_now].seen[warp_then] >= time;
}

inline void check_place(const void* p, size_t bytes, const char* what) {
    const size_t offset = static_cast<const unsigned char*>(p) - shared;
    const size_t block = offset / SHARED_ROOM, place = offset % SHARED_ROOM;
    if (place + bytes > launch.shared_bytes)
        die("%s of %zu bytes at %zu of shared memory, which has %zu bytes", what, bytes, place,
            launch.shared_bytes);
    if (current && static_cast<int>(block) != current->block) {
        bool lives = false;
        for (const Thread& t : threads) lives |= t.block == static_cast<int>(block) && !t.is_ended;
        if (!lives) die("%s of the shared memory of block %zu of the cluster, which has ended", what, block);
        bool has_begun = !launch.finds_races;
        for (int w = 0; w < warps_of_block(); ++w)
            has_begun |= warp().seen[block * warps_of_block() + w] >= first_time;
        if (!has_begun)
            die("%s of the shared memory of block %zu of the cluster, which may not have begun: a barrier of "
                "the cluster is missing", what, block);
    }
}

[[noreturn]] inline void report_race(const char* now, size_t granule, const char* missing,
                                     const char* then, int thread, const void* place) {
    const Thread& other = threads[thread];
    die("%s at %zu of block %d's shared memory without a %s after the %s by block %d, thread %d @ %p\n  now",
        now, granule * 2 % SHARED_ROOM, first_block + static_cast<int>(granule * 2 / SHARED_ROOM), missing,
        then, first_block + other.block, other.number, place);
}

// A read by a thread, or by all of a warp (`reader` is -1); `place` is in the kernel's code.
inline void note_read(const void* p, size_t bytes, int by_warp, int reader, const void* place) {
    const size_t begin = (static_cast<const unsigned char*>(p) - shared) / 2;
    const size_t end = (static_cast<const unsigned char*>(p) - shared + bytes + 1) / 2;
    const uint32_t now = warps[by_warp].time;
    const uint32_t lanes = reader < 0 ? 0xffffffffu : 1u << reader % 32;
    for (size_t g = begin; g < end; ++g) {
        const Last& w = last[g];
        if (w.state != UNTOUCHED && w.time >= first_time) {
            if (w.state == ON_ITS_WAY)
                die("read at %zu of shared memory of what an asynchronous copy is still to bring: "
                    "nobody has waited for it @ %p\n  now", g * 2 % SHARED_ROOM, w.place);
            const int warp_then = threads[w.thread].warp;
            if (!comes_before(warp_then, w.time, by_warp))
                report_race("read", g, "barrier", "write", w.thread, w.place);
            if (warp_then == by_warp && w.thread != reader && w.time == now && w.state == WRITTEN)
                report_race("read", g, "__syncwarp", "write", w.thread, w.place);
        }
        Read& r = reads[g * warps.size() + by_warp];
        r = {now, r.time == now ? r.lanes | lanes : lanes, place};
    }
}

inline void note_write(const void* p, size_t bytes, int by_thread, State state, const void* place) {
    const int by_warp = threads[by_thread].warp;
    const size_t begin = (static_cast<const unsigned char*>(p) - shared) / 2;
    const size_t end = (static_cast<const unsigned char*>(p) - shared + bytes + 1) / 2;
    const size_t count = warps.size();
    const uint32_t now = warps[by_warp].time;
    const char* what = state == ON_ITS_WAY ? "asynchronous copy" : "write";
    for (size_t g = begin; g < end; ++g) {
        Last& w = last[g];
        if (w.state == ON_ITS_WAY && w.time >= first_time && state != ON_ITS_WAY)
            die("write at %zu of shared memory where an asynchronous copy is to arrive @ %p\n  now",
                g * 2 % SHARED_ROOM, w.place);
        // Two writes without a barrier may be of the same value, but a copy's never are.
        if (state == ON_ITS_WAY && w.state != UNTOUCHED && w.time >= first_time &&
            !comes_before(threads[w.thread].warp, w.time, by_warp))
            report_race(what, g, "barrier", "write", w.thread, w.place);
        for (size_t i = 0; i < count; ++i) {
            const Read& r = reads[g * count + i];
            if (r.time < first_time) continue;
            const int warp_then = static_cast<int>(i);
            const uint32_t others = warp_then == by_warp ? r.lanes & ~(1u << by_thread % 32) : r.lanes;
            if (!others) continue;
            const int reader = warp_then * 32 + __builtin_ctz(others);
            if (!comes_before(warp_then, r.time, by_warp))
                report_race(what, g, "barrier", "read", reader, r.place);
            if (warp_then == by_warp && r.time == now)
                report_race(what, g, "__syncwarp", "read", reader, r.place);
        }
        w = {static_cast<uint16_t>(by_thread), state, now, place};
    }
}

inline void check_global(const void* p, size_t bytes, bool writes) {
    const unsigned char* at = static_cast<const unsigned char*>(p);
    static size_t recent = 0;
    auto holds = [&](const Tensor& t) { return at >= t.begin && at + bytes <= t.begin + t.bytes; };
    if (!holds(tensors[recent])) {
        size_t i = 0;
        while (i < tensors.size() && !holds(tensors[i])) ++i;
        if (i == tensors.size()) {
            const Tensor* nearest = &tensors[0];
            for (const Tensor& t : tensors)
                if (t.begin <= at + GUARD_BYTES / 2) nearest = &t;
            die("%s of %zu bytes outside of %s: %ld bytes from its beginning, and it has %zu",
                writes ? "write" : "read", bytes, nearest->name.c_str(),
                static_cast<long>(at - nearest->begin), nearest->bytes);
        }
        recent = i;
    }
    if (writes && tensors[recent].is_input) die("write to the input %s", tensors[recent].name.c_str());
}

// What the copy engine reads; elsewhere than in a tensor is an error.
inline void check_source(const void* p, size_t bytes) {
    if (static_cast<size_t>(static_cast<const unsigned char*>(p) - global) >= global_room)
        die("an asynchronous copy from an address that is not global memory");
    check_global(p, bytes, false);
}

inline void check_shared(const void* p, size_t bytes, size_t alignment, const char* what) {
    if (!is_shared(p)) die("%s of an address that is not in shared memory", what);
    check_place(p, bytes, what);
    if (shared_offset(p) % alignment)
        die("%s at %ld of shared memory, which is no multiple of %zu", what, shared_offset(p), alignment);
}

inline void touch(const void* p, size_t bytes, bool writes, const void* place) {
    if (is_shared(p)) {
        if (reinterpret_cast<uintptr_t>(p) % (bytes > 16 ? 1 : bytes))
            die("access of %zu bytes at %ld of shared memory: misaligned", bytes, shared_offset(p));
        check_place(p, bytes, writes ? "write" : "read");
        if (!launch.finds_races) return;
        const int thread = static_cast<int>(current - threads.data());
        if (writes) note_write(p, bytes, thread, WRITTEN, place);
        else note_read(p, bytes, current->warp, thread, place);
    } else if (static_cast<size_t>(static_cast<const unsigned char*>(p) - global) < global_room) {
        if (reinterpret_cast<uintptr_t>(p) % (bytes > 16 ? 1 : bytes))
            die("access of %zu bytes to global memory: misaligned", bytes);
        check_global(p, bytes, writes);
    }
}

void* in_other_block(const void* p, unsigned rank) {
    if (!is_shared(p)) die("in_block of an address that is not in shared memory");
    if (rank >= static_cast<unsigned>(launch.cluster))
        die("block %u of a cluster that has %d", rank, launch.cluster);
    return shared_of_block(static_cast<int>(rank)) + shared_offset(p);
}

}  // namespace on_cpu

#define ON_CPU_HOOK(NAME, BYTES, WRITES) \
    extern "C" void NAME(void* p) { on_cpu::touch(p, BYTES, WRITES, __builtin_return_address(0)); }
#define ON_CPU_HOOKS(N) \
    ON_CPU_HOOK(__tsan_read##N, N, false) \
    ON_CPU_HOOK(__tsan_write##N, N, true) \
    ON_CPU_HOOK(__tsan_volatile_read##N, N, false) \
    ON_CPU_HOOK(__tsan_volatile_write##N, N, true) \
    ON_CPU_HOOK(__tsan_unaligned_read##N, N, false) \
    ON_CPU_HOOK(__tsan_unaligned_write##N, N, true) \
    ON_CPU_HOOK(__tsan_read_write##N, N, true)
ON_CPU_HOOKS(1)
ON_CPU_HOOKS(2)
ON_CPU_HOOKS(4)
ON_CPU_HOOKS(8)
ON_CPU_HOOKS(16)
extern "C" void __tsan_read_range(void* p, unsigned long n) { on_cpu::touch(p, n, false, __builtin_return_address(0)); }
extern "C" void __tsan_write_range(void* p, unsigned long n) { on_cpu::touch(p, n, true, __builtin_return_address(0)); }

// Of the instrumentation for misaligned accesses (UndefinedBehaviorSanitizer).
struct UbsanMismatch {
    const char* file;
    unsigned line, column;
    const void* type;
    unsigned char alignment_bits, kind;
};
extern "C" void __ubsan_handle_type_mismatch_v1(UbsanMismatch* what, uintptr_t p) {
    on_cpu::die("misaligned access: the type wants multiples of %d, and the address is %d above one",
                1 << what->alignment_bits, static_cast<int>(p & ((1 << what->alignment_bits) - 1)));
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void* __tsan_memcpy(void* to, const void* from, unsigned long n) {
    on_cpu::touch(from, n, false, __builtin_return_address(0));
    on_cpu::touch(to, n, true, __builtin_return_address(0));
    return memcpy(to, from, n);
}
extern "C" void* __tsan_memset(void* to, int value, unsigned long n) {
    on_cpu::touch(to, n, true, __builtin_return_address(0));
    return memset(to, value, n);
}
extern "C" void* __tsan_memmove(void* to, const void* from, unsigned long n) {
    on_cpu::touch(from, n, false, __builtin_return_address(0));
    on_cpu::touch(to, n, true, __builtin_return_address(0));
    return memmove(to, from, n);
}
