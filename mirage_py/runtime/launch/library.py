"""Operators that a vendor library computes on whole tensors, as calls of torch with ``out=``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mirage_py.errors import UnsupportedError
from mirage_py.runtime.launch.library_convolution import convolution_function
from mirage_py.runtime.launch.library_convolution import convolution_of as convolution_of  # noqa: PLC0414
from mirage_py.ugraph.ir.convolution import Convolution
from mirage_py.ugraph.operators import named

if TYPE_CHECKING:
    import torch

# Elementwise operators that torch computes under the same name; each takes ``out``.
_NAMES = named(lambda o: o.has_out)


def library_function(op: str, convolution: Convolution | None = None) -> Callable[..., Any]:
    """torch's function for an operator. Raises UnsupportedError."""
    import torch

    if convolution is not None:
        return convolution_function(convolution)
    if op == "matmul":
        return _matmul
    if op not in _NAMES:
        raise UnsupportedError(
            f"no library call for '{op}'",
            repair=f"use one of {', '.join(('matmul', *_NAMES))}",
        )
    function: Callable[..., Any] = getattr(torch, op)
    return function


def _matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> None:
    """A product into ``out``, whose type may be another: what follows may need the sums of half
    numbers in float32, which cuBLAS has anyway.
    """
    import torch

    if a.dtype == b.dtype == out.dtype:
        torch.matmul(a, b, out=out)
        return
    widened = {2: torch.mm, 3: torch.bmm}.get(a.dim()) if _widens(a, b, out) else None
    if widened is not None:
        widened(a, b, out_dtype=out.dtype, out=out)
        return
    torch.matmul(a.to(out.dtype), b.to(out.dtype), out=out)


def _widens(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> bool:
    """Whether the library itself takes the types: halves on a GPU to float32, without broadcast."""
    import torch

    halves = a.dtype == b.dtype and a.dtype in (torch.float16, torch.bfloat16)
    return (
        halves
        and out.dtype == torch.float32
        and out.is_cuda
        and a.dim() == b.dim() == out.dim()
        and a.shape[:-2] == b.shape[:-2]
        and hasattr(torch.ops.aten.mm, "dtype_out")
    )
