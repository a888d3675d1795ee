"""Compiling, launching, checking, timing and caching of plans.

Stands on codegen, ugraph, verify and targets. torch and triton are imported where they are used,
and a saved artifact runs without the search, the e-graph and the front ends.
"""
