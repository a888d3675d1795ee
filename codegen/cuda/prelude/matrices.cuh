// Loads four 8x8 matrices of 16-bit elements; lane i names row i % 8 of matrix i / 8.
__device__ __forceinline__ void ldmatrix_x4(
    unsigned& a, unsigned& b, unsigned& c, unsigned& d, const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(shared_address(row)) : "memory");
}

// Loads four 8x8 matrices of 16-bit elements, transposed; lane i names row i % 8 of matrix i / 8.
__device__ __forceinline__ void ldmatrix_x4_trans(
    unsigned& a, unsigned& b, unsigned& c, unsigned& d, const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(shared_address(row)) : "memory");
}

// Loads two 8x8 matrices of 16-bit elements; lanes 0 to 15 name rows, of the others none counts.
__device__ __forceinline__ void ldmatrix_x2(unsigned& a, unsigned& b, const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(a), "=r"(b) : "r"(shared_address(row)) : "memory");
}

// Loads two 8x8 matrices of 16-bit elements, transposed; lanes 0 to 15 name rows, of the others none counts.
__device__ __forceinline__ void ldmatrix_x2_trans(unsigned& a, unsigned& b, const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(a), "=r"(b) : "r"(shared_address(row)) : "memory");
}

// Stores four 8x8 matrices of 16-bit elements; lane i names row i % 8 of matrix i / 8 (sm_90).
__device__ __forceinline__ void stmatrix_x4(
    void* row, unsigned a, unsigned b, unsigned c, unsigned d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :: "r"(shared_address(row)), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// Stores four 8x8 matrices of 16-bit elements, transposed; lane i names row i % 8 of matrix i / 8 (sm_90).
__device__ __forceinline__ void stmatrix_x4_trans(
    void* row, unsigned a, unsigned b, unsigned c, unsigned d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 :: "r"(shared_address(row)), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
