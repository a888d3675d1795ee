"""Well-known forms of kernels, told apart by structure and called by the names people use."""
