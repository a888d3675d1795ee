"""Front end for PyTorch functions: ``trace`` makes a program of one (docs/reference/torch.md)."""

from __future__ import annotations

from mirage_py.frontend.torch.handlers import HANDLERS
from mirage_py.frontend.torch.trace import TracedCall, trace, trace_call

__all__ = ["HANDLERS", "TracedCall", "trace", "trace_call"]
