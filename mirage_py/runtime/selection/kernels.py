"""The first k elements of rows in two kernels: of each part of a row, then of all its parts.

An element and its place are one integer, which no other element has: the element's bits as a number
of the same order, then the place counted backwards, so that of equal elements the one in front is
larger. Each pass takes the largest that is left. NaN is the largest, as torch has it, and the two
zeros are equal.

Parameters have no types: Triton's compiler evaluates annotations, and accepts only constexpr.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def _ordered(x, HALF: tl.constexpr, LARGEST: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN202
    if HALF:
        bits = x.to(tl.int16, bitcast=True).to(tl.int32)
        top = 0x7FFF
    else:
        bits = x.to(tl.int32, bitcast=True)
        top = 0x7FFFFFFF
    found = tl.where(bits < 0, bits ^ top, bits)
    found = tl.where(x == 0.0, 0, found)
    found = tl.where(x != x, top, found)  # noqa: PLR0124  NaN
    return found if LARGEST else ~found


@triton.jit  # type: ignore[untyped-decorator]
def first_of_parts(  # type: ignore[no-untyped-def]
    x_ptr, value_ptr, place_ptr, n, stride, parts, length,
    COUNT: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr, HALF: tl.constexpr,
    LARGEST: tl.constexpr,
) -> None:  # fmt: skip
    """The first of each part of a row: their ordered bits and places, -1 where there are fewer."""
    row = tl.program_id(0) // parts
    part = tl.program_id(0) % parts
    local = tl.arange(0, BLOCK)
    place = part * length + local
    inside = (local < length) & (place < n)
    x = tl.load(x_ptr + row.to(tl.int64) * stride + place, mask=inside, other=0.0)
    if HALF:
        least = tl.full([], -(2**31), tl.int32)
        key = (_ordered(x, HALF, LARGEST) << 16) | (0xFFFF - local)
    else:
        least = tl.full([], -(2**63), tl.int64)
        key = (_ordered(x, HALF, LARGEST).to(tl.int64) << 32) | (0xFFFF - local)
    key = tl.where(inside, key, least)
    numbers = tl.arange(0, PADDED)
    found = tl.full([PADDED], 0, key.dtype) + least
    for nth in range(COUNT):
        best = tl.max(key, 0)
        found = tl.where(numbers == nth, best, found)
        key = tl.where(key == best, least, key)
    value = found >> 16 if HALF else (found >> 32).to(tl.int32)
    place = part * length + 0xFFFF - (found & 0xFFFF).to(tl.int32)
    at = tl.program_id(0) * COUNT + numbers
    tl.store(value_ptr + at, value, mask=numbers < COUNT)
    tl.store(place_ptr + at, tl.where(found == least, -1, place), mask=numbers < COUNT)


@triton.jit  # type: ignore[untyped-decorator]
def first_of_all(  # type: ignore[no-untyped-def]
    value_ptr, place_ptr, out_ptr, index_ptr, found_in_parts,
    COUNT: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr, HALF: tl.constexpr,
    LARGEST: tl.constexpr,
) -> None:  # fmt: skip
    """The first of what the parts of a row have found, as elements and places."""
    row = tl.program_id(0)
    number = tl.arange(0, BLOCK)
    inside = number < found_in_parts
    place = tl.load(place_ptr + row * found_in_parts + number, mask=inside, other=-1)
    value = tl.load(value_ptr + row * found_in_parts + number, mask=inside, other=0)
    least = tl.full([], -(2**63), tl.int64)
    key = (value.to(tl.int64) << 32) | (0x7FFFFFFF - place.to(tl.int64))
    key = tl.where(place >= 0, key, least)
    numbers = tl.arange(0, PADDED)
    found = tl.full([PADDED], 0, tl.int64) + least
    for nth in range(COUNT):
        best = tl.max(key, 0)
        found = tl.where(numbers == nth, best, found)
        key = tl.where(key == best, least, key)
    ordered = (found >> 32).to(tl.int32)
    if not LARGEST:
        ordered = ~ordered
    if HALF:
        bits = tl.where(ordered < 0, ordered ^ 0x7FFF, ordered).to(tl.int16)
    else:
        bits = tl.where(ordered < 0, ordered ^ 0x7FFFFFFF, ordered)
    at = row * COUNT + numbers
    inside = numbers < COUNT
    tl.store(out_ptr + at, bits.to(out_ptr.dtype.element_ty, bitcast=True), mask=inside)
    tl.store(index_ptr + at, 0x7FFFFFFF - (found & 0x7FFFFFFF), mask=inside)
