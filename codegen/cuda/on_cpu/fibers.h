// Threads that take turns: a stack each, and a switch from one to another.
#pragma once
#include <stddef.h>
#include <sys/mman.h>

namespace on_cpu {

constexpr size_t STACK_BYTES = 256 << 10, PAGE_BYTES = 4096;

// A stack with a page below it that nobody may touch.
inline unsigned char* new_stack() {
    void* at = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    mprotect(at, PAGE_BYTES, PROT_NONE);
    return static_cast<unsigned char*>(at);
}

}  // namespace on_cpu

#if defined(__x86_64__)

// Keeps what a called function must keep on the stack of the one, and takes it from the other's.
asm(R"(
.text
.globl on_cpu_switch
.type on_cpu_switch, @function
on_cpu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size on_cpu_switch, .-on_cpu_switch
)");
extern "C" void on_cpu_switch(void** from, void* to);

namespace on_cpu {

struct Fiber {
    void* top = nullptr;
    unsigned char* stack = nullptr;

    void begin(void (*body)()) {
        void** slot = reinterpret_cast<void**>(stack + STACK_BYTES - 16);
        *slot = reinterpret_cast<void*>(body);
        for (int i = 0; i < 6; ++i) *--slot = nullptr;
        top = slot;
    }
};

inline void switch_fibers(Fiber& from, Fiber& to) { on_cpu_switch(&from.top, to.top); }

}  // namespace on_cpu

#else
#include <ucontext.h>

namespace on_cpu {

struct Fiber {
    ucontext_t context;
    unsigned char* stack = nullptr;

    void begin(void (*body)()) {
        getcontext(&context);
        context.uc_stack.ss_sp = stack + PAGE_BYTES;
        context.uc_stack.ss_size = STACK_BYTES - PAGE_BYTES;
        context.uc_link = nullptr;
        makecontext(&context, body, 0);
    }
};

inline void switch_fibers(Fiber& from, Fiber& to) { swapcontext(&from.context, &to.context); }

}  // namespace on_cpu

#endif
