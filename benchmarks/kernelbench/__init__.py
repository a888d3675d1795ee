"""KernelBench as a suite: its problems as given, from a checkout outside of this repository."""
