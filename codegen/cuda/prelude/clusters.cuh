// The number of this block in its cluster.
__device__ __forceinline__ unsigned cluster_rank() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Arrives at the barrier of the cluster; what was written is published.
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

// Waits until all threads of the cluster have arrived.
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The same place in the shared memory of another block of the cluster.
template <class T>
__device__ __forceinline__ T* in_block(T* p, unsigned rank) {
    T* there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(p), "r"(rank));
    return there;
}

// The same place in another block of the cluster, as an address for instructions.
__device__ __forceinline__ unsigned remote_address(const void* local, unsigned rank) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(local)), "r"(rank));
    return there;
}

// What lies at the same place in another block of the cluster.
__device__ __forceinline__ float load_remote(const float* local, unsigned rank) {
    float x;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(remote_address(local, rank)) : "memory");
    return x;
}

// Four neighbours that lie at the same place in another block of the cluster.
__device__ __forceinline__ float4 load_remote(const float4* local, unsigned rank) {
    float4 x;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(remote_address(local, rank)) : "memory");
    return x;
}

// Stores at the same place in another block of the cluster.
__device__ __forceinline__ void store_remote(float* local, unsigned rank, float x) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" :: "r"(remote_address(local, rank)), "f"(x) : "memory");
}

// Stores four neighbours at the same place in another block of the cluster.
__device__ __forceinline__ void store_remote(float4* local, unsigned rank, float4 x) {
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};"
                 :: "r"(remote_address(local, rank)), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w) : "memory");
}
