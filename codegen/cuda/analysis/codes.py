"""Codes of four and eight bits as halves, two at a time: no conversion of an integer."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.ugraph.ir.dtypes import BF16, I8, U8, DType
from mirage_py.ugraph.ir.index import Predicate
from mirage_py.ugraph.operators import ELEMENTWISE, operator

# Up to here a zero point and 128 more is a number of bfloat16.
_LARGEST_ZERO = 127.0
_BYTES, _NIBBLES = np.arange(256.0), np.arange(16.0)
# A sign, two bits of an exponent, one of a significand (OCP MX).
_E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


# What a code of four bits is added to where its zero point stays in: they are the highest bits of
# the significand of 16, so that sums of products are as small as they can be.
EXCESS = 16.0


class CodeOrder(Enum):
    """Which codes of four bytes are a pair of halves: of bytes two apart, or the two of a byte."""

    APART = "apart"
    BYTE = "byte"


@dataclass(frozen=True, slots=True)
class Codes:
    """The integers of a byte that ``load`` reads; or, where ``inside`` names a dimension, what the
    two codes of each stand for, the low one first unless ``high_first``: ``kind`` is "u4", whole
    numbers less a zero point, or "e2m1". ``factor`` is a value that they are multiplied by; -1 for
    none.
    """

    load: int
    kind: str = "i8"
    inside: str = ""
    zero: float = 0.0
    factor: int = -1
    high_first: bool = False

    @property
    def word_bits(self) -> int:
        """Bits of the number of a code among those of four bytes."""
        return 3 if self.inside else 2

    @property
    def is_pair(self) -> bool:
        """Whether one factor puts both codes of a byte where the halves of a pair are."""
        return self.kind == "u4" and not self.high_first

    def order(self, registers: Sequence[tuple[str, int]]) -> CodeOrder | None:
        """The order in which four bytes are taken apart, by the lowest bits of the number of a
        register; None where it is neither.
        """
        inside = [(self.inside, 0)] if self.inside else []
        dim = next((d for d, _ in registers if d != self.inside), "")
        lowest = [*registers[: self.word_bits]]
        if lowest == [(dim, 1), *inside, (dim, 0)]:
            return CodeOrder.APART
        is_byte = self.is_pair and lowest == [*inside, (dim, 0), (dim, 1)]
        return CodeOrder.BYTE if is_byte else None

    @property
    def excess(self) -> float:
        """What halves are more than what they stand for, where no zero point is subtracted."""
        return EXCESS + self.zero

    def zero_word(self, dtype: DType) -> str:
        """Two halves: the zero point, and what a code is added to."""
        if dtype == BF16:
            half = struct.unpack("<I", struct.pack("<f", 128.0 + self.zero))[0] >> 16
        else:
            half = struct.unpack("<H", struct.pack("<e", 1024.0 + self.zero))[0]
        return f"0x{half:04x}{half:04x}u"


def codes_of(facts: BlockAnalysis, number: int) -> Codes | None:
    """A value as codes; None for anything else."""
    node = facts.block.nodes[number]
    if node.op == "load":
        return Codes(number) if facts.dtypes[number] == I8 else None
    found = None
    if node.op == "mul":
        found = _scaled(facts, *node.args) or _scaled(facts, *reversed(node.args))
    elif node.op == "cast":
        found = codes_of(facts, node.args[0])
    return found or _pairs(facts, number)


def _scaled(facts: BlockAnalysis, factor: int, number: int) -> Codes | None:
    """Codes times a half or a power of two: float32 has their product, so that it is rounded
    once.
    """
    root = facts.root(factor)
    is_factor = facts.dtypes[root].is_half or is_power(facts, root)
    found = codes_of(facts, number) if is_factor else None
    return replace(found, factor=root) if found is not None and found.factor < 0 else None


def is_power(facts: BlockAnalysis, number: int) -> bool:
    """Whether a value is two to the power of a byte less 127, which bfloat16 has (OCP MX: e8m0)."""
    node = facts.block.nodes[number]
    if node.op != "exp2":
        return False
    loads, dims = set[int](), set[str]()
    found = _evaluated(facts, node.args[0], loads, dims)
    if found is None or len(loads) != 1 or dims:
        return False
    return bool((found == _BYTES - 127.0).all())


def _pairs(facts: BlockAnalysis, number: int) -> Codes | None:
    """The two codes of a byte, from what they stand for in every byte."""
    loads, dims = set[int](), set[str]()
    found = _evaluated(facts, number, loads, dims)
    if found is None or len(loads) != 1 or len(dims) != 1:
        return None
    first, second = np.broadcast_to(found, (2, len(_BYTES)))
    high_first = bool((first[: len(_NIBBLES)] == first[0]).all())
    low, high = (second, first) if high_first else (first, second)
    table = low[: len(_NIBBLES)]
    (load,), (dim,) = loads, dims
    if not (np.tile(table, 16) == low).all() or not (np.repeat(table, 16) == high).all():
        return None
    zero = float(-table[0])
    if zero.is_integer() and 0.0 <= zero <= _LARGEST_ZERO and (table == _NIBBLES - zero).all():
        return Codes(load, "u4", dim, zero, high_first=high_first)
    is_e2m1 = (table == np.concatenate((_E2M1, -_E2M1))).all()
    return Codes(load, "e2m1", dim, high_first=high_first) if is_e2m1 else None


def _evaluated(facts: BlockAnalysis, number: int, loads: set[int], dims: set[str]) -> Any:
    """A value for both places of a dimension and each byte; None where it depends on more."""
    node = facts.block.nodes[number]
    if node.op == "load":
        loads.add(number)
        return _BYTES if facts.dtypes[number] == U8 else None
    if node.op == "const":
        return np.float64(str(node.attr)) if isinstance(node.attr, float) else None
    if isinstance(node.attr, Predicate):
        return _places(facts, node.attr, dims) if node.op == "mask" else None
    row = operator(node.op)
    if row.kind != ELEMENTWISE or (row.over_floats is None and node.op != "cast"):
        return None
    args = [_evaluated(facts, a, loads, dims) for a in node.args]
    if any(a is None for a in args):
        return None
    return args[0] if row.over_floats is None else row.over_floats(*args)


def _places(facts: BlockAnalysis, mask: Predicate, dims: set[str]) -> Any:
    dims.update(mask.dims())
    if len(mask.dims()) != 1 or facts.program.sizes[next(iter(mask.dims()))] != 2:
        return None
    (dim,) = mask.dims()
    return np.array([[float(mask.evaluate({dim: place}))] for place in (0, 1)])
