// The blocks of one cluster, their warps and threads, and whose turn it is.
#pragma once
#include <execinfo.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <deque>
#include <string>
#include <vector>

#include "device.h"
#include "fibers.h"

namespace on_cpu {

struct Copy {
    unsigned char* to;
    std::vector<unsigned char> bytes;
    const void* place = nullptr;  // in the kernel's code
};

// Lanes (or threads of a warp group) that do one thing together.
struct Meeting {
    std::string what;
    int arrived = 0;
    int first = 0;  // number of the thread that came first
    void* given[128];
};

struct Thread {
    Fiber fiber;
    int number = 0, block = 0, warp = 0;  // in the block, in the cluster, in the cluster
    bool is_ended = false;
    std::string waits;  // for what; empty while it runs
    const void* waits_at = nullptr;  // the barrier in shared memory, if for one
    std::vector<Copy> open_copies;
    std::deque<std::vector<Copy>> copy_groups;
    unsigned fenced = 0;  // the warp's time at its last fence for the copy engine
};

struct Warp {
    Meeting meeting;
    unsigned time = 1;
    std::vector<unsigned> seen;  // of each warp, the time up to which its accesses come before
};

// What is known of the accesses of all who arrived somewhere.
typedef std::vector<unsigned> Times;

struct Launch {
    std::string kernel;
    int grid = 0, cluster = 1, threads = 0;
    size_t shared_bytes = 0;
    bool finds_races = true;
};

inline Launch launch;
inline std::vector<Thread> threads;  // of the cluster, block by block
inline std::vector<Warp> warps;
inline std::deque<Thread*> ready;
inline Thread* current = nullptr;
inline Fiber outside;
inline int first_block = 0, running = 0;

inline Warp& warp() { return warps[current->warp]; }
inline int warps_of_block() { return launch.threads / 32; }

// Where the current thread is, as addresses; whoever reads the message finds the lines.
inline std::string here() {
    void* frames[24];
    const int count = backtrace(frames, 24);
    std::string text = " @";
    for (int i = 1; i < count; ++i) {
        char address[32];
        snprintf(address, sizeof address, " %p", frames[i]);
        text += address;
    }
    return text;
}

[[noreturn]] inline void die(const char* format, ...) {
    fprintf(stderr, "kernel %s", launch.kernel.c_str());
    if (current) fprintf(stderr, ", block %d, thread %d", first_block + current->block, current->number);
    fprintf(stderr, ": ");
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s\n", current ? here().c_str() : "");
    fflush(stderr);
    _exit(3);
}

// What is missing at a barrier in shared memory.
std::string missing_at(const void* barrier);

inline std::string doing_of(const Thread& one) {
    if (one.is_ended) return "have ended";
    return "wait " + one.waits + (one.waits_at ? missing_at(one.waits_at) : "");
}

inline void take_turn(Thread* next) {
    current = next;
    threadIdx.x = next->number;
    blockIdx.x = first_block + next->block;
}

// Set while threads that wait say where they are.
inline Fiber* asks_where = nullptr;
inline std::string answer;

inline std::string where_is(Thread& one) {
    if (&one == current) return here();
    Thread* me = current;
    take_turn(&one);
    asks_where = &me->fiber;
    switch_fibers(me->fiber, one.fiber);
    asks_where = nullptr;
    take_turn(me);
    return answer;
}

// Nobody can go on: who waits for what.
[[noreturn]] inline void report_deadlock() {
    std::string text;
    for (size_t i = 0; i < threads.size();) {
        Thread& one = threads[i];
        const std::string doing = doing_of(one);
        size_t j = i;
        while (j < threads.size() && threads[j].block == one.block && doing_of(threads[j]) == doing) ++j;
        if (text.size() < 2000)
            text += "\n  block " + std::to_string(first_block + one.block) + ", threads " +
                    std::to_string(one.number) + " to " + std::to_string(threads[j - 1].number) + " " +
                    doing + (one.is_ended ? "" : where_is(one));
        i = j;
    }
    current = nullptr;
    die("deadlock, nobody can go on:%s", text.c_str());
}

// Lets others run until somebody calls `wake` for this thread.
inline void wait(std::string what) {
    Thread* me = current;
    me->waits = std::move(what);
    if (ready.empty()) report_deadlock();
    Thread* next = ready.front();
    ready.pop_front();
    take_turn(next);
    if (next != me) switch_fibers(me->fiber, next->fiber);
    while (asks_where) {
        answer = here();
        switch_fibers(me->fiber, *asks_where);
    }
    me->waits.clear();
    me->waits_at = nullptr;
}

inline void wake(Thread* thread) { ready.push_back(thread); }

inline void end_thread() {
    Thread* me = current;
    me->is_ended = true;
    --running;
    if (running == 0) {
        switch_fibers(me->fiber, outside);
    } else {
        if (ready.empty()) report_deadlock();
        Thread* next = ready.front();
        ready.pop_front();
        take_turn(next);
        switch_fibers(me->fiber, next->fiber);
    }
    abort();
}

inline void learn(Times& to, const Times& from) {
    if (to.size() < from.size()) to.resize(from.size());
    for (size_t i = 0; i < from.size(); ++i)
        if (to[i] < from[i]) to[i] = from[i];
}

// What the current warp has done so far becomes known where `times` are read.
inline void publish(Times& times) {
    warp().seen[current->warp] = warp().time++;
    learn(times, warp().seen);
}

// Has `count` threads, 32 or 128 of them from a multiple of it, do one thing together: the last to
// come does `work` with what all have given.
template <class Work>
void meet(Meeting& meeting, int count, const std::string& what, void* mine, Work work) {
    Thread* me = current;
    const int place = me->number % count;
    if (meeting.arrived == 0) {
        meeting.what = what;
        meeting.first = me->number;
    } else if (meeting.what != what) {
        die("is at %s while thread %d of its %s is at %s: threads went different ways", what.c_str(),
            meeting.first, count == 32 ? "warp" : "warp group", meeting.what.c_str());
    }
    meeting.given[place] = mine;
    if (++meeting.arrived < count) {
        wait("at " + what);
        return;
    }
    const int first_warp = me->warp - place / 32;
    for (int w = first_warp; w < first_warp + count / 32; ++w) warps[w].seen[w] = warps[w].time++;
    work(meeting.given);
    meeting.arrived = 0;
    Thread* base = me - place;
    for (int i = 0; i < count; ++i)
        if (base + i != me) wake(base + i);
}

}  // namespace on_cpu
