"""Code generation: from a plan to kernels as text."""
