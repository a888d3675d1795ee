"""mirage_py: a tensor program as mathematics in, verified and fast GPU kernels out."""

from __future__ import annotations

__version__ = "0.1.0"
