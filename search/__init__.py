"""How we look: from a program to the kernels that could compute it. README.md has the reading order."""
