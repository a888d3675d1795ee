// The address of a place in shared memory, as instructions take it.
__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// The position where it is one of so many; else the kernel ends with an error.
__device__ __forceinline__ long long checked_position(long long position, long long count) {
    if (static_cast<unsigned long long>(position) >= count) __trap();
    return position;
}
