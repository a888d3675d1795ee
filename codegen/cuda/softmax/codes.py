"""Codes of four and eight bits as halves, two at a time: no conversion of an integer."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.text.layout import Layout
from mirage_py.ugraph.ir.dtypes import BF16, I8, U8, DType
from mirage_py.ugraph.ir.index import Predicate

_LAST_NIBBLE, _NIBBLE_BITS = 15.0, 4.0
# Up to here a zero point and 128 more is a number of bfloat16.
_LARGEST_ZERO = 127.0


@dataclass(frozen=True, slots=True)
class Codes:
    """The integers of a byte that ``load`` reads; or, where ``inside`` names a dimension, the two
    codes of each, the low one first, less a zero point.
    """

    load: int
    inside: str = ""
    zero: float = 0.0

    def fits(self, layout: Layout) -> bool:
        """Whether a thread's registers are in the order in which four bytes are taken apart."""
        first = layout.registers[0] if layout.registers else ("", 0)
        dim = first[0]
        wanted = ((dim, 0), *([(self.inside, 0)] if self.inside else []), (dim, 1))
        return layout.registers[: len(wanted)] == wanted

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
    if node.op == "cast":
        return codes_of(facts, node.args[0])
    if node.op == "load":
        return Codes(number) if facts.dtypes[number] == I8 else None
    if node.op == "sub":
        value, zero = (facts.block.nodes[a] for a in node.args)
        found = codes_of(facts, node.args[0]) if value.op in ("where", "cast") else None
        is_zero = isinstance(zero.attr, float) and _is_zero_point(zero.attr)
        if found is None or not found.inside or found.zero or zero.op != "const" or not is_zero:
            return None
        return Codes(found.load, found.inside, float(str(zero.attr)))
    return _chosen(facts, number) if node.op == "where" else None


def _is_zero_point(value: float) -> bool:
    return value.is_integer() and 0.0 <= value <= _LARGEST_ZERO


def _chosen(facts: BlockAnalysis, number: int) -> Codes | None:
    """The low codes at the first place of a dimension, the high ones at the second."""
    mask, low, high = facts.block.nodes[number].args
    condition = facts.block.nodes[mask].attr
    if not isinstance(condition, Predicate) or len(condition.dims()) != 1:
        return None
    (dim,) = condition.dims()
    at = [bool(condition.evaluate({dim: place})) for place in (0, 1)]
    if facts.program.sizes[dim] != len(at) or at != [True, False]:
        return None
    first, second = _part(facts, low), _part(facts, high)
    if first is None or second is None or (first[0], first[2]) != (second[0], second[2]):
        return None
    if (first[1], second[1]) != (("bit_and", _LAST_NIBBLE), ("shift_right", _NIBBLE_BITS)):
        return None
    return Codes(first[0], dim, first[2])


def _part(facts: BlockAnalysis, number: int) -> tuple[int, tuple[str, float], float] | None:
    """The load, what is taken of its bytes, and the zero point."""
    nodes, zero = facts.block.nodes, 0.0
    node = nodes[facts.root(number)]
    if node.op == "sub" and isinstance(found := nodes[node.args[1]].attr, float):
        if nodes[node.args[1]].op != "const" or not _is_zero_point(found):
            return None
        zero, node = found, nodes[facts.root(_uncast(facts, node.args[0]))]
    while node.op == "cast":
        node = nodes[node.args[0]]
    if node.op not in ("bit_and", "shift_right"):
        return None
    load, number_of = node.args
    constant = nodes[number_of].attr
    if nodes[load].op != "load" or facts.dtypes[load] != U8 or not isinstance(constant, float):
        return None
    return load, (node.op, constant), zero


def _uncast(facts: BlockAnalysis, number: int) -> int:
    while facts.block.nodes[number].op == "cast":
        number = facts.block.nodes[number].args[0]
    return number
