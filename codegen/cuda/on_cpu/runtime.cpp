// Runs one kernel: reads how it is launched and its tensors, and writes back what it wrote.
//
// The file named on the command line has a line for each fact:
//     kernel NAME | grid N | cluster N | threads N | shared BYTES | races 0 or 1
//     tensor NAME BYTES INPUT FILE          (in the order of the pointers that come after)
//     pointer TENSOR                        (numbers count from 0)
//     map TENSOR RANK ELEMENT_BYTES SWIZZLE SHAPE... STRIDES_BYTES... STEPS... ROUNDS COUNT BOX... COUNT CORNERS...
#include "warpgroups.h"

#include <signal.h>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

// In the file of the kernel: calls it with these arguments.
extern void on_cpu_call(void** arguments);

namespace on_cpu {

static std::vector<void*> pointers;
static std::vector<TensorMap> maps;
static std::vector<void*> arguments;
static std::vector<std::string> files;

unsigned char* dynamic_shared() { return shared_of_block(current->block); }

void trap() { die("__trap"); }

void will_add(void* p, unsigned bytes) {
    if (is_shared(p)) check_place(p, bytes, "atomicAdd");
    else check_global(p, bytes, true);
}

static void body() {
    on_cpu_call(arguments.data());
    end_thread();
}

static void read_whole(const std::string& file, unsigned char* to, size_t bytes) {
    FILE* in = fopen(file.c_str(), "rb");
    if (!in || fread(to, 1, bytes, in) != bytes) die("cannot read %zu bytes of %s", bytes, file.c_str());
    fclose(in);
}

static void read_launch(const char* path) {
    FILE* in = fopen(path, "r");
    if (!in) die("cannot read %s", path);
    char word[64], name[4096], file[4096];
    struct Place { size_t tensor; TensorMap map; };
    std::vector<size_t> pointer_tensors;
    std::vector<Place> places;
    while (fscanf(in, "%63s", word) == 1) {
        const std::string key = word;
        long value = 0;
        bool read = true;
        if (key == "kernel") {
            read = fscanf(in, "%4095s", name) == 1;
            launch.kernel = name;
        } else if (key == "tensor") {
            Tensor t;
            int is_input = 0;
            read = fscanf(in, "%4095s %zu %d %4095[^\n]", name, &t.bytes, &is_input, file) == 4;
            t.name = name;
            t.is_input = is_input != 0;
            tensors.push_back(t);
            files.push_back(file[0] == ' ' ? file + 1 : file);
        } else if (key == "map") {
            Place p{};
            read = fscanf(in, "%zu %u %u %u", &p.tensor, &p.map.rank, &p.map.element_bytes, &p.map.swizzle_bytes) == 4 && p.map.rank <= 5;
            for (unsigned i = 0; read && i < p.map.rank; ++i) read = fscanf(in, "%llu", &p.map.shape[i]) == 1;
            for (unsigned i = 1; read && i < p.map.rank; ++i) read = fscanf(in, "%llu", &p.map.strides_bytes[i]) == 1;
            for (unsigned i = 0; read && i < p.map.rank; ++i) read = fscanf(in, "%u", &p.map.steps[i]) == 1;
            unsigned count = 0;
            read = read && fscanf(in, "%u", &p.map.rounds) == 1 && fscanf(in, "%u", &count) == 1 && count <= 5;
            for (unsigned i = 0; read && i < count; ++i) read = fscanf(in, "%u", &p.map.box[i]) == 1;
            read = read && fscanf(in, "%u", &p.map.moved_axes) == 1 && p.map.moved_axes <= 3;
            for (unsigned i = 0; read && i < p.map.moved_axes; ++i) read = fscanf(in, "%d", &p.map.corners[i]) == 1;
            places.push_back(p);
        } else {
            read = fscanf(in, "%ld", &value) == 1;
            if (key == "grid") launch.grid = static_cast<int>(value);
            else if (key == "cluster") launch.cluster = static_cast<int>(value);
            else if (key == "threads") launch.threads = static_cast<int>(value);
            else if (key == "shared") launch.shared_bytes = static_cast<size_t>(value);
            else if (key == "races") launch.finds_races = value != 0;
            else if (key == "pointer") pointer_tensors.push_back(static_cast<size_t>(value));
            else read = false;
        }
        if (!read) die("%s: cannot understand '%s'", path, word);
    }
    fclose(in);
    for (const Tensor& t : tensors) global_room += (t.bytes + 255) / 256 * 256 + GUARD_BYTES;
    global = reserve(global_room += GUARD_BYTES);
    unsigned char* at = global + GUARD_BYTES;
    for (size_t i = 0; i < tensors.size(); ++i) {
        tensors[i].begin = at;
        read_whole(files[i], at, tensors[i].bytes);
        at += (tensors[i].bytes + 255) / 256 * 256 + GUARD_BYTES;
    }
    for (size_t t : pointer_tensors) pointers.push_back(tensors.at(t).begin);
    for (Place& p : places) {
        p.map.address = tensors.at(p.tensor).begin;
        maps.push_back(p.map);
    }
    for (void*& p : pointers) arguments.push_back(&p);
    for (TensorMap& m : maps) arguments.push_back(&m);
}

static void run_cluster() {
    memset(shared, 0xff, shared_room);
    uint32_t time = first_time;
    for (const Warp& w : warps)
        if (w.time > time) time = w.time;
    first_time = time + 1;
    for (Warp& w : warps) {
        w.meeting.arrived = 0;
        w.time = first_time;
        w.seen.assign(warps.size(), 0);
    }
    barriers.assign(16 * launch.cluster, Barrier());
    mbarriers.clear();
    cluster_barrier = Barrier();
    arrived_at_cluster.assign(threads.size(), 0);
    cluster_round_of.assign(threads.size(), 0);
    warp_groups.assign(launch.cluster * groups_of_block(), WarpGroup());
    running = static_cast<int>(threads.size());
    for (Thread& t : threads) {
        t.fiber.begin(body);
        t.is_ended = false;
        t.waits.clear();
        t.open_copies.clear();
        t.copy_groups.clear();
        t.fenced = 0;
        ready.push_back(&t);
    }
    Thread* first = ready.front();
    ready.pop_front();
    take_turn(first);
    switch_fibers(outside, first->fiber);
    current = nullptr;
    if (launch.finds_races) check_end();
}

static void on_signal(int number) {
    die("ended by signal %d (an address that is nowhere, or a misaligned one)", number);
}

static void run() {
    if (launch.threads <= 0 || launch.threads % 32 || launch.threads > 1024) die("blocks of %d threads", launch.threads);
    if (launch.cluster < 1 || launch.cluster > 16 || launch.grid % launch.cluster)
        die("%d blocks in clusters of %d", launch.grid, launch.cluster);
    if (launch.shared_bytes > SHARED_ROOM - 1024) die("%zu bytes of shared memory", launch.shared_bytes);
    blockDim = {static_cast<unsigned>(launch.threads), 1, 1};
    gridDim = {static_cast<unsigned>(launch.grid), 1, 1};
    shared_room = SHARED_ROOM * launch.cluster;
    // What lies below and above belongs to nobody.
    unsigned char* room = reserve(shared_room + 2 * PAGE_BYTES);
    shared = room + PAGE_BYTES;
    mprotect(room, PAGE_BYTES, PROT_NONE);
    mprotect(shared + shared_room, PAGE_BYTES, PROT_NONE);
    threads.resize(static_cast<size_t>(launch.threads) * launch.cluster);
    warps.resize(threads.size() / 32);
    if (launch.finds_races) {
        last = reinterpret_cast<Last*>(reserve(shared_room / 2 * sizeof(Last)));
        reads = reinterpret_cast<Read*>(reserve(shared_room / 2 * sizeof(Read) * warps.size()));
    }
    for (size_t i = 0; i < threads.size(); ++i) {
        threads[i].number = static_cast<int>(i) % launch.threads;
        threads[i].block = static_cast<int>(i) / launch.threads;
        threads[i].warp = static_cast<int>(i) / 32;
        threads[i].fiber.stack = new_stack();
        if (!threads[i].fiber.stack) die("no room for stacks");
    }
    for (first_block = 0; first_block < launch.grid; first_block += launch.cluster) run_cluster();
}

}  // namespace on_cpu

int main(int count, char** words) {
    if (count != 2) die("usage: one file that says how to launch");
    static unsigned char signal_stack[64 << 10];
    stack_t stack = {};
    stack.ss_sp = signal_stack;
    stack.ss_size = sizeof signal_stack;
    sigaltstack(&stack, nullptr);
    struct sigaction action = {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_ONSTACK;
    for (int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(s, &action, nullptr);
    make_half_table();
    read_launch(words[1]);
    run();
    for (size_t i = 0; i < tensors.size(); ++i) {
        if (tensors[i].is_input) continue;
        FILE* out = fopen(files[i].c_str(), "wb");
        if (!out || fwrite(tensors[i].begin, 1, tensors[i].bytes, out) != tensors[i].bytes || fclose(out))
            die("cannot write %s", files[i].c_str());
    }
    return 0;
}
