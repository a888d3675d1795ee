// The next kernel, if it starts early, may be placed on the GPU once all blocks have said so.
__device__ __forceinline__ void next_kernel_may_start() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Waits until the kernel before has ended and what it wrote can be read.
__device__ __forceinline__ void wait_for_kernel_before() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
