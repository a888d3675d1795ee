// Barriers of a block, of a cluster, and those in shared memory that count arrivals and bytes.
#pragma once
#include <map>

#include "memory.h"

namespace on_cpu {

struct Barrier {
    int wanted = 0;
    int arrived = 0;  // of those that do not wait
    std::vector<Thread*> here;
    Times times;
};

struct Mbarrier {
    unsigned count = 0, pending = 0, phase = 0;
    long bytes = 0;  // expected and not yet here
    bool is_fenced = false;
    Thread* maker = nullptr;
    Times gathering, ended;  // times known to this phase, and to those before
    std::vector<Thread*> waiting;
    std::vector<Copy> copies;
};

inline std::vector<Barrier> barriers;  // 16 of each block
inline std::map<const void*, Mbarrier> mbarriers;
inline Barrier cluster_barrier;
inline std::vector<char> arrived_at_cluster;  // of each thread
inline unsigned cluster_rounds = 0;
inline std::vector<unsigned> cluster_round_of;  // of each thread, the round it arrived in

inline void pass(Barrier& barrier) {
    for (Thread* t : barrier.here) {
        warps[t->warp].seen[t->warp] = warps[t->warp].time;
        learn(barrier.times, warps[t->warp].seen);
    }
    for (Thread* t : barrier.here) {
        learn(warps[t->warp].seen, barrier.times);
        ++warps[t->warp].time;
        if (t != current) wake(t);
    }
    barrier.here.clear();
    barrier.wanted = barrier.arrived = 0;
}

// The barrier for so many threads; whether this thread, which waits or has just arrived, is the last.
inline bool is_last_at(Barrier& barrier, int count, const char* what) {
    if (barrier.wanted && barrier.wanted != count)
        die("is at %s for %d threads, where another one is for %d", what, count, barrier.wanted);
    barrier.wanted = count;
    return static_cast<int>(barrier.here.size()) + barrier.arrived == count;
}

inline void come_to(int id, int count, const char* what) {
    Barrier& barrier = barriers[current->block * 16 + id];
    barrier.here.push_back(current);
    if (is_last_at(barrier, count, what)) pass(barrier);
    else wait(std::string("at ") + what + (id ? " " + std::to_string(id) : ""));
}

void sync_threads() { come_to(0, launch.threads, "__syncthreads"); }

void sync_warp(unsigned mask) {
    if (mask != 0xffffffffu) die("__syncwarp of a part of the warp is not known here");
    meet(warp().meeting, 32, "__syncwarp", nullptr, [](void**) {});
}

// --- barriers in shared memory

inline Mbarrier& mbarrier_at(unsigned long long* bar, const char* what) {
    check_shared(bar, 8, 8, what);
    auto found = mbarriers.find(bar);
    if (found == mbarriers.end()) die("%s at %ld of shared memory, where no barrier was made", what, shared_offset(bar));
    if (launch.finds_races) {
        const Last& made = last[(reinterpret_cast<unsigned char*>(bar) - shared) / 2];
        const Thread& maker = threads[made.thread];
        if (&maker != current && !comes_before(maker.warp, made.time, current->warp))
            die("%s at %ld of shared memory, whose barrier block %d, thread %d made: no __syncthreads (or "
                "barrier of the cluster) lies between", what, shared_offset(bar),
                first_block + maker.block, maker.number);
        if (maker.warp == current->warp && &maker != current && made.time == warp().time)
            die("%s at %ld of shared memory, whose barrier another lane made, without __syncwarp", what,
                shared_offset(bar));
    }
    return found->second;
}

inline void advance(Mbarrier& b) {
    if (b.pending || b.bytes) return;
    b.phase ^= 1;
    b.pending = b.count;
    learn(b.ended, b.gathering);
    for (Thread* t : b.waiting) {
        learn(warps[t->warp].seen, b.ended);
        wake(t);
    }
    b.waiting.clear();
}

std::string missing_at(const void* barrier) {
    const Mbarrier& b = mbarriers[barrier];
    return " (" + std::to_string(b.pending) + " arrivals and " + std::to_string(b.bytes) + " bytes to come)";
}

inline void arrive(unsigned long long* bar, unsigned bytes, const char* what) {
    Mbarrier& b = mbarrier_at(bar, what);
    if (b.pending == 0) die("%s at %ld of shared memory: more arrivals than the %u it counts", what, shared_offset(bar), b.count);
    b.bytes += bytes;
    --b.pending;
    publish(b.gathering);
    advance(b);
}

// The bytes of copies that report to a barrier come when somebody waits there.
inline void deliver(Mbarrier& b, unsigned long long* bar) {
    std::vector<Copy> copies;
    copies.swap(b.copies);
    for (Copy& copy : copies) {
        memcpy(copy.to, copy.bytes.data(), copy.bytes.size());
        if (launch.finds_races)
            for (size_t g = (copy.to - shared) / 2; g < (copy.to - shared + copy.bytes.size()) / 2; ++g)
                last[g].state = BY_COPY_ENGINE;
        b.bytes -= static_cast<long>(copy.bytes.size());
    }
    if (b.bytes < 0 && b.pending == 0)
        die("%ld bytes more than expected came to the barrier at %ld of shared memory", -b.bytes, shared_offset(bar));
    if (!copies.empty()) advance(b);
}

inline void report_copy(unsigned long long* bar, Copy copy, const void* place) {
    Mbarrier& b = mbarrier_at(bar, "a copy's barrier");
    if (!b.is_fenced)
        die("the copy engine reports to the barrier at %ld of shared memory: mbarrier_fence_init is missing",
            shared_offset(bar));
    if (launch.finds_races)
        note_write(copy.to, copy.bytes.size(), static_cast<int>(current - threads.data()), ON_ITS_WAY, place);
    memset(copy.to, 0xff, copy.bytes.size());
    copy.place = place;
    b.copies.push_back(std::move(copy));
    publish(b.gathering);
    if (!b.waiting.empty()) deliver(b, bar);
}

// --- the barrier of a cluster

inline bool has_arrived() { return arrived_at_cluster[current - threads.data()]; }

}  // namespace on_cpu

using namespace on_cpu;

inline void check_barrier(int id, int threads) {
    if (id < 0 || id > 15 || threads % 32 || threads <= 0 || threads > launch.threads)
        die("there is no barrier %d of %d threads", id, threads);
}

void named_barrier(int id, int threads) {
    check_barrier(id, threads);
    come_to(id, threads, id ? "named_barrier" : "__syncthreads");
}

void named_arrive(int id, int threads) {
    check_barrier(id, threads);
    Barrier& barrier = barriers[current->block * 16 + id];
    publish(barrier.times);
    ++barrier.arrived;
    if (is_last_at(barrier, threads, "named_arrive")) pass(barrier);
}

void mbarrier_init(unsigned long long* bar, unsigned count) {
    check_shared(bar, 8, 8, "mbarrier_init");
    if (count == 0) die("a barrier that counts no arrivals");
    if (launch.finds_races) note_write(bar, 8, static_cast<int>(current - threads.data()), WRITTEN, __builtin_return_address(0));
    Mbarrier b;
    b.count = b.pending = count;
    b.maker = current;
    b.gathering = b.ended = Times(warps.size());
    mbarriers[bar] = b;
}

void mbarrier_fence_init() {
    for (auto& [place, b] : mbarriers) b.is_fenced |= b.maker == current;
}

void mbarrier_expect(unsigned long long* bar, unsigned bytes) { arrive(bar, bytes, "mbarrier_expect"); }

void mbarrier_arrive(unsigned long long* bar) { arrive(bar, 0, "mbarrier_arrive"); }

void mbarrier_arrive_at(unsigned long long* bar, unsigned rank) {
    arrive(static_cast<unsigned long long*>(in_other_block(bar, rank)), 0, "mbarrier_arrive_at");
}

void mbarrier_wait(unsigned long long* bar, unsigned parity) {
    if (parity > 1) die("mbarrier_wait for parity %u", parity);
    Mbarrier& b = mbarrier_at(bar, "mbarrier_wait");
    if (b.phase == parity) deliver(b, bar);
    if (b.phase == parity) {
        b.waiting.push_back(current);
        current->waits_at = bar;
        wait("for the phase of parity " + std::to_string(parity) + " of the barrier at " +
             std::to_string(shared_offset(bar)) + " of shared memory");
    } else {
        learn(warp().seen, b.ended);
    }
}

unsigned cluster_rank() { return static_cast<unsigned>(current->block); }

void cluster_arrive() {
    const size_t me = current - threads.data();
    if (has_arrived()) die("cluster_arrive twice without cluster_wait between");
    arrived_at_cluster[me] = 1;
    cluster_round_of[me] = cluster_rounds;
    publish(cluster_barrier.times);
    if (++cluster_barrier.wanted < static_cast<int>(threads.size())) return;
    cluster_barrier.wanted = 0;
    ++cluster_rounds;
    for (Thread* t : cluster_barrier.here) wake(t);
    cluster_barrier.here.clear();
}

void cluster_wait() {
    const size_t me = current - threads.data();
    if (!has_arrived()) die("cluster_wait without cluster_arrive");
    if (cluster_round_of[me] == cluster_rounds) {
        cluster_barrier.here.push_back(current);
        wait("at cluster_wait");
    }
    arrived_at_cluster[me] = 0;
    learn(warp().seen, cluster_barrier.times);
}
