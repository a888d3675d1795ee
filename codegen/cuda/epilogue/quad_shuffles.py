"""Quad shuffles: a layout conversion within a warp that swaps a lane bit with a register bit.

MMA results lie in pairs of halves: a thread would store 4 bytes and a row 16, half of what the L2
takes at once. With the launch option ``stores lanes`` the four lanes of a row exchange half of
their words by shuffles, so that each stores 16 bytes and the quad 64, without shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirage_py.codegen.cuda.text.layout import Bit, Layout
from mirage_py.codegen.cuda.text.value import Value
from mirage_py.codegen.cuda.writer.emission import Emission


@dataclass(frozen=True, slots=True)
class QuadShuffle:
    """Bit ``register`` of a register's number and bit ``lane`` of a lane's change places."""

    register: int
    lane: int


def quad_shuffles(own: Layout, row: Sequence[Bit]) -> tuple[QuadShuffle, ...]:
    """How each thread comes by all of a ``row``, positions that it then stores at once; empty where
    it has them, where lanes hold the same, or where it takes more than swaps of pairs.
    """
    if own.registers[:1] != tuple(row[:1]) or None in own.lanes or None in own.warps:
        return ()
    missing = [bit for bit in row if bit not in own.registers]
    # The next bits of the row's own dimension go to lanes: they store side by side.
    spare = sorted(
        (bit for bit in own.registers[1:] if bit not in row),
        key=lambda bit: (bit[0] != row[0][0], bit[1]),
    )
    if len(spare) < len(missing) or any(bit not in own.lanes for bit in missing):
        return ()
    return tuple(
        QuadShuffle(own.registers.index(given), own.lanes.index(taken))
        for given, taken in zip(spare, missing, strict=False)
    )


def shuffled(own: Layout, shuffles: Sequence[QuadShuffle]) -> Layout:
    """The layout after the swaps."""
    registers, lanes = list(own.registers), list(own.lanes)
    for shuffle in shuffles:
        given, taken = registers[shuffle.register], lanes[shuffle.lane]
        assert taken is not None
        registers[shuffle.register], lanes[shuffle.lane] = taken, given
    return Layout(tuple(registers), tuple(lanes), own.warps)


def emit_shuffles(out: Emission, value: Value, shuffles: Sequence[QuadShuffle]) -> Value:
    """The value of packed halves after the swaps, in registers of its own."""
    found = Value(
        out.fresh(f"{value.name}_swapped"), shuffled(value.layout, shuffles), value.dtype, True
    )
    out.comment(f"{value.name}: lanes swap what they have, so that each stores more at once.")
    out.line(found.declaration())
    with out.unrolled("i", found.words) as i:
        out.line(f"{found.word(i)} = {value.word(i)};")
    for shuffle in shuffles:
        below = shuffle.register - 1  # bits of a word's number under the one that is swapped
        with out.unrolled("i", found.words // 2) as i:
            low = _spread(i, below)
            first, second = found.word(low), found.word(f"{low} + {1 << below}")
            out.line(f"swap_with_lane({first}, {second}, {1 << shuffle.lane});")
    return found


def _spread(variable: str, below: int) -> str:
    """A number with a zero between its ``below`` lowest bits and the others."""
    if variable == "0":
        return "0"
    if below == 0:
        return f"2 * {variable}"
    high = f"({variable} >> {below} << {below + 1})"
    return f"{high} + ({variable} & {(1 << below) - 1})"
