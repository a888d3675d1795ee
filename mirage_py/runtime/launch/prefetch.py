"""What a launch asks the L2 for: memory that later kernels read (launch option ``prefetch``)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# As the text of kernels has it: codegen/cuda/prelude/prefetch.cuh.
MOST_SPANS = 5


@dataclass(frozen=True, slots=True)
class Span:
    """The first ``bytes`` of each of ``rows`` pieces of memory, every ``stride`` bytes from
    ``address`` on; all of them multiples of 16.
    """

    address: int
    rows: int
    stride: int
    bytes: int


def span_of(
    matrix: torch.Tensor, first_row: int, last_row: int, first_byte: int, last_byte: int
) -> Span:
    """Of the rows from one to another one the bytes from one to another one."""
    stride = matrix.stride(0) * matrix.element_size()
    begin = matrix.data_ptr() + first_row * stride + first_byte
    return Span(begin, last_row - first_row, stride, last_byte - first_byte)


class _Spans(ctypes.Structure):
    _fields_ = [
        ("address", ctypes.c_uint64 * MOST_SPANS),
        ("rows", ctypes.c_uint32 * MOST_SPANS),
        ("stride", ctypes.c_uint32 * MOST_SPANS),
        ("bytes", ctypes.c_uint32 * MOST_SPANS),
        ("rest", ctypes.c_char * 28),
    ]


class PrefetchArgument:
    """The argument of a plan's launches, at first nothing. It says nothing of results, so that
    threads may share it: one may ask for what another one needs.
    """

    def __init__(self) -> None:
        self._spans = _Spans()
        # Where the driver finds it.
        self.address = ctypes.addressof(self._spans)

    def say(self, spans: Sequence[Span]) -> None:
        """The next launches ask for the first few of these."""
        said, few = self._spans, spans[:MOST_SPANS]
        for number, span in enumerate(few):
            said.address[number] = span.address
            said.stride[number], said.bytes[number] = span.stride, span.bytes
        for number in range(MOST_SPANS):
            said.rows[number] = few[number].rows if number < len(few) else 0
