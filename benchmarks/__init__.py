"""Benchmarks: workloads, peers, and the harness that measures them in one run."""
