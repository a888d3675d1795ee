"""Block graphs as CUDA C++: layouts, shared memory, barriers and clusters made explicit."""
