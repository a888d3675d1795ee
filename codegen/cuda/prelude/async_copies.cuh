// Starts a copy of 16 bytes to shared memory, or of zeros where nothing is in; past L1.
__device__ __forceinline__ void cp_async_16(void* to_shared, const void* from_global, bool is_in) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(shared_address(to_shared)), "l"(from_global), "r"(is_in ? 16 : 0) : "memory");
}

// The same; the L2 fetches all 128 bytes around, which other threads ask for.
__device__ __forceinline__ void cp_async_16_of_128(void* to_shared, const void* from_global, bool is_in) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :: "r"(shared_address(to_shared)), "l"(from_global), "r"(is_in ? 16 : 0) : "memory");
}

// Starts a copy of 8 bytes to shared memory, or of zeros where nothing is in.
__device__ __forceinline__ void cp_async_8(void* to_shared, const void* from_global, bool is_in) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
                 :: "r"(shared_address(to_shared)), "l"(from_global), "r"(is_in ? 8 : 0) : "memory");
}

// Starts a copy of 4 bytes to shared memory, or of zeros where nothing is in.
__device__ __forceinline__ void cp_async_4(void* to_shared, const void* from_global, bool is_in) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"(shared_address(to_shared)), "l"(from_global), "r"(is_in ? 4 : 0) : "memory");
}

// Ends a group of copies: those that this thread has started since the last group.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most N of this thread's groups of copies are on their way.
template <int N>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
}
