"""Integer instructions of PTX on known values.

A value is a Python number where all threads have the same one, or an array of int64 of shape
(blocks or 1, lanes or 1). Numbers of up to 32 bits are kept without their sign, those of 64 bits
with it. ``UNKNOWN`` is what depends on data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Value = Any


class _Unknown:
    __slots__ = ()

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN = _Unknown()
_LONG = 1 << 64


def wrap(value: Value, bits: int) -> Value:
    """The same number in a register of so many bits."""
    if isinstance(value, bool | np.bool_):
        return int(value)
    if bits < 64:
        return value & ((1 << bits) - 1)
    if isinstance(value, int):
        value &= _LONG - 1
        return value - _LONG if value >> 63 else value
    return value


def signed(value: Value, bits: int) -> Value:
    """A kept number as one with a sign."""
    return value if bits == 64 else value - ((value >> (bits - 1) & 1) << bits)


def _unsigned(value: Value) -> Value:
    if isinstance(value, int):
        return value & (_LONG - 1)
    return value.astype(np.uint64)


def read_as(value: Value, kind: str) -> Value:
    """A kept number as its type says: ``s32``, ``u64``, ``b16``."""
    bits = int(kind[1:])
    if kind[0] == "s":
        return signed(wrap(value, bits), bits)
    if bits == 64:
        return _unsigned(value) if isinstance(value, np.ndarray) else value & (_LONG - 1)
    return wrap(value, bits)


def _truncated_quotient(a: Value, b: Value) -> Value:
    if isinstance(a, int) and isinstance(b, int):
        q = abs(a) // abs(b)
        return q if (a < 0) == (b < 0) else -q
    q = np.abs(a) // np.abs(b)
    return np.where((np.asarray(a) < 0) == (np.asarray(b) < 0), q, -q)


def _shift_left(a: Value, n: Value, bits: int) -> Value:
    if isinstance(n, int):
        return 0 if n >= bits else a << n
    return np.where(n >= bits, 0, np.asarray(a) << np.minimum(n, bits - 1))


def _shift_right(a: Value, n: Value, bits: int) -> Value:
    if isinstance(n, int) and (isinstance(a, int) or bits < 64):
        return a >> min(n, 63)
    if isinstance(a, np.ndarray) and a.dtype == np.uint64:
        return (a >> np.minimum(np.asarray(n), 63).astype(np.uint64)).astype(np.int64)
    return np.asarray(a) >> np.minimum(n, 63)


def _both(a: Value, b: Value, one: Callable[..., Any], many: Callable[..., Any]) -> Value:
    return one(a, b) if isinstance(a, int) and isinstance(b, int) else many(a, b)


_COMPARISONS: dict[str, Callable[[Value, Value], Value]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lo": lambda a, b: a < b,
    "ls": lambda a, b: a <= b,
    "hi": lambda a, b: a > b,
    "hs": lambda a, b: a >= b,
}


def is_integer(kind: str) -> bool:
    """Whether a type is one of whole numbers or bits."""
    return kind[:1] in "sub" and kind[1:].isdigit() and int(kind[1:]) <= 64


def compare(parts: Sequence[str], a: Value, b: Value) -> Value:
    """``setp`` of a kind such as ``lt`` and a type."""
    kind = parts[-1]
    if a is UNKNOWN or b is UNKNOWN or not is_integer(kind):
        return UNKNOWN
    return _COMPARISONS[parts[1]](read_as(a, kind), read_as(b, kind))


def compute(parts: Sequence[str], args: Sequence[Value]) -> Value:
    """The result of an instruction, UNKNOWN for those that are not known here."""
    name, kind = parts[0], parts[-1]
    if kind == "pred":
        return _logic(name, args)
    if not is_integer(kind) or any(a is UNKNOWN for a in args):
        return UNKNOWN
    bits = int(kind[1:])
    function = _FUNCTIONS.get(name)
    if function is None:
        return UNKNOWN
    return function(parts, kind, bits, args)


def _logic(name: str, args: Sequence[Value]) -> Value:
    if name == "not":
        return UNKNOWN if args[0] is UNKNOWN else np.logical_not(args[0])
    if name == "mov":
        return bool(args[0]) if isinstance(args[0], int) else args[0]
    a, b = args[:2]
    if a is UNKNOWN or b is UNKNOWN:
        known = b if a is UNKNOWN else a
        # What is false whatever the data is.
        if known is not UNKNOWN and name == "and" and not np.any(known):
            return False
        if known is not UNKNOWN and name == "or" and np.all(known):
            return True
        return UNKNOWN
    operations = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
    return operations[name](a, b) if name in operations else UNKNOWN


def _add(parts: Sequence[str], kind: str, bits: int, args: Sequence[Value]) -> Value:
    if "cc" in parts:
        return UNKNOWN
    return wrap(args[0] + args[1], bits)


def _sub(parts: Sequence[str], kind: str, bits: int, args: Sequence[Value]) -> Value:
    if "cc" in parts:
        return UNKNOWN
    return wrap(args[0] - args[1], bits)


def _mul(parts: Sequence[str], kind: str, bits: int, args: Sequence[Value]) -> Value:
    a, b = read_as(args[0], kind), read_as(args[1], kind)
    if "wide" in parts:
        return wrap(a * b, 2 * bits)
    if "hi" in parts:
        return UNKNOWN if bits == 64 else wrap(a * b >> bits, bits)
    if bits == 64 and not isinstance(a * b, int):
        return np.asarray(args[0], np.int64) * np.asarray(args[1], np.int64)
    return wrap(a * b, bits)


def _mad(parts: Sequence[str], kind: str, bits: int, args: Sequence[Value]) -> Value:
    product = _mul(parts, kind, bits, args[:2])
    if product is UNKNOWN:
        return UNKNOWN
    return wrap(product + args[2], 2 * bits if "wide" in parts else bits)


def _div(parts: Sequence[str], kind: str, bits: int, args: Sequence[Value]) -> Value:
    a, b = read_as(args[0], kind), read_as(args[1], kind)
    if not np.all(b):
        return UNKNOWN
    if bits == 64 and kind[0] != "s":
        a, b = args[0], args[1]
        if np.any(np.less(a, 0)) or np.any(np.less(b, 0)):
            return UNKNOWN
    q = _truncated_quotient(a, b)
    return wrap(q if parts[0] == "div" else a - q * b, bits)


def _select(parts: Sequence[str], kind: str, bits: int, args: Sequence[Value]) -> Value:
    a, b, p = args
    if isinstance(p, bool | int | np.bool_):
        return a if p else b
    return np.where(p, a, b)


def _convert(parts: Sequence[str], kind: str, bits: int, args: Sequence[Value]) -> Value:
    to = parts[-2]
    if not is_integer(to) or "sat" in parts:
        return UNKNOWN
    value = read_as(args[0], kind)
    if isinstance(value, np.ndarray) and value.dtype == np.uint64:
        value = value.astype(np.int64)
    return wrap(value, int(to[1:]))


def _insert(parts: Sequence[str], kind: str, bits: int, args: Sequence[Value]) -> Value:
    what, into, at, length = args
    if not isinstance(at, int) or not isinstance(length, int):
        return UNKNOWN
    mask = ((1 << length) - 1) << at
    return wrap((into & ~mask) | (what << at & mask), bits)


def _extract(parts: Sequence[str], kind: str, bits: int, args: Sequence[Value]) -> Value:
    what, at, length = args
    if not isinstance(at, int) or not isinstance(length, int) or not 0 < length < 64:
        return UNKNOWN
    found = read_as(what, f"u{bits}") >> at & ((1 << length) - 1)
    return wrap(signed(found, length) if kind[0] == "s" else found, bits)


def _lookup(parts: Sequence[str], kind: str, bits: int, args: Sequence[Value]) -> Value:
    a, b, c, table = args
    if not isinstance(table, int):
        return UNKNOWN
    found: Value = 0
    for n in range(8):
        if table >> n & 1:
            x = a if n & 4 else ~a
            y = b if n & 2 else ~b
            z = c if n & 1 else ~c
            found = found | (x & y & z)
    return wrap(found, bits)


def _permute(parts: Sequence[str], kind: str, bits: int, args: Sequence[Value]) -> Value:
    a, b, chosen = args
    if not isinstance(chosen, int) or len(parts) > 2:
        return UNKNOWN
    found: Value = 0
    for n in range(4):
        byte = chosen >> 4 * n & 7
        value = (a >> 8 * byte if byte < 4 else b >> 8 * (byte - 4)) & 0xFF
        if chosen >> 4 * n & 8:
            value = (value >> 7) * 0xFF
        found = found | value << 8 * n
    return found


def _dot(parts: Sequence[str], kind: str, bits: int, args: Sequence[Value]) -> Value:
    """Two numbers of 16 bits times the lower or upper two of four bytes, and a sum."""
    pair, four, added = args
    if [*parts[-2:]] != ["u32", "u32"]:
        return UNKNOWN
    at = 16 if "hi" in parts else 0
    low = (pair & 0xFFFF) * (four >> at & 0xFF)
    return wrap(added + low + (pair >> 16 & 0xFFFF) * (four >> at + 8 & 0xFF), bits)


def _funnel(parts: Sequence[str], kind: str, bits: int, args: Sequence[Value]) -> Value:
    low, high, count = args
    if not isinstance(count, int):
        return UNKNOWN
    count = count & 31 if "wrap" in parts else min(count, 32)
    if parts[1] == "l":
        return wrap(high << count | low >> (32 - count), 32)
    return wrap(low >> count | high << (32 - count), 32)


def _bits_set(parts: Sequence[str], kind: str, bits: int, args: Sequence[Value]) -> Value:
    if isinstance(args[0], int):
        return (args[0] & (_LONG - 1)).bit_count()
    return np.bitwise_count(args[0]).astype(np.int64)


_FUNCTIONS: dict[str, Callable[[Sequence[str], str, int, Sequence[Value]], Value]] = {
    "mov": lambda p, k, n, a: wrap(a[0], n),
    "cvta": lambda p, k, n, a: a[0],
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "mad": _mad,
    "div": _div,
    "rem": _div,
    "selp": _select,
    "cvt": _convert,
    "bfi": _insert,
    "bfe": _extract,
    "lop3": _lookup,
    "prmt": _permute,
    "dp2a": _dot,
    "shf": _funnel,
    "popc": _bits_set,
    "and": lambda p, k, n, a: a[0] & a[1],
    "or": lambda p, k, n, a: a[0] | a[1],
    "xor": lambda p, k, n, a: a[0] ^ a[1],
    "not": lambda p, k, n, a: wrap(~a[0], n),
    "neg": lambda p, k, n, a: wrap(-signed(a[0], n), n),
    "abs": lambda p, k, n, a: wrap(abs(signed(a[0], n)), n),
    "shl": lambda p, k, n, a: wrap(_shift_left(a[0], a[1], n), n),
    "shr": lambda p, k, n, a: wrap(_shift_right(read_as(a[0], k), a[1], n), n),
    "min": lambda p, k, n, a: wrap(_both(read_as(a[0], k), read_as(a[1], k), min, np.minimum), n),
    "max": lambda p, k, n, a: wrap(_both(read_as(a[0], k), read_as(a[1], k), max, np.maximum), n),
}
# What ``compute`` knows, for those who ask whether a register may ever be known.
KNOWN = frozenset(_FUNCTIONS)
