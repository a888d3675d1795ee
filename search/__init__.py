"""The search: from a program to the kernels that could compute it. See README.md."""
