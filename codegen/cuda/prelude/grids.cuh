// The next kernel, if it starts early, may be placed on the GPU once all blocks have said so.
__device__ __forceinline__ void next_kernel_may_start() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Nobody knows any more what this pointer was, but that it is one to global memory.
template <class P>
__device__ __forceinline__ void hide_origin(P& pointer) {
    asm volatile("" : "+l"(pointer));
    __builtin_assume(__isGlobal(pointer));
}

// Waits until the kernel before has ended and what it wrote can be read. ptxas moves loads through
// parameters that nothing is written to (ld.global.nc) up in front of a wait: these are such no more.
template <class... P>
__device__ __forceinline__ void wait_for_kernel_before(P&... read) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    (hide_origin(read), ...);
}
