"""From plans to running kernels: compile, launch, time, keep.

Stands on codegen, ugraph, verify and targets. torch and triton are imported where they are used,
and a saved artifact runs without the search, the e-graph and the front ends.
"""
