"""Register layouts: where the elements of a tile lie in the registers of a block's threads.

A layout maps every bit of a register index, lane index and warp index to a bit of a position: a
linear layout ("Linear Layouts", Zhou et al., 2025) in which no bit is the sum of two. Extents of
tiles are powers of two, so every layout of MMA fragments, vector accesses and broadcasts has this
form.

A lane or warp bit that is None maps to no position: threads that differ in it alone hold the same
elements. A lane or warp bit over a dimension that the value does not have indexes partial results:
what the threads hold that differ in it has yet to be summed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

LANE_BITS = 5

# Bit ``power`` of the position along a dimension.
Bit = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Layout:
    """``registers``, ``lanes`` (5 of them) and ``warps`` from the lowest bit to the highest."""

    registers: tuple[Bit, ...]
    lanes: tuple[Bit | None, ...]
    warps: tuple[Bit | None, ...]

    @property
    def register_count(self) -> int:
        """Elements that a thread holds."""
        return 1 << len(self.registers)

    def bits(self) -> tuple[Bit, ...]:
        """Every bit that stands for a position: of registers, then lanes, then warps."""
        threads = (b for b in (*self.lanes, *self.warps) if b is not None)
        return (*self.registers, *threads)

    def without(self, dims: Iterable[str]) -> Layout:
        """What is left of it for a value that lacks some dimensions: copies in many threads."""
        gone = tuple(dims)

        def kept(bit: Bit | None) -> Bit | None:
            return None if bit is None or bit[0] in gone else bit

        registers = tuple(b for b in self.registers if b[0] not in gone)
        return Layout(registers, tuple(map(kept, self.lanes)), tuple(map(kept, self.warps)))

    def of_dims(self, dims: Sequence[str]) -> Layout:
        """What is left of it for a value that has only these dimensions."""
        return self.without(dict.fromkeys(b[0] for b in self.bits() if b[0] not in dims))

    def summed_in_threads(self, dims: Iterable[str]) -> Layout:
        """After each thread has added up what it holds along ``dims``: parts of sums remain."""
        gone = tuple(dims)
        registers = tuple(b for b in self.registers if b[0] not in gone)
        return Layout(registers, self.lanes, self.warps)

    def has_same_threads(self, other: Layout) -> bool:
        """Whether both give every thread the same elements, in any order of registers."""
        threads = self.lanes == other.lanes and self.warps == other.warps
        return threads and sorted(self.registers) == sorted(other.registers)

    def warp_bits_of(self, dims: Iterable[str]) -> tuple[int, ...]:
        """Numbers of the warp bits that stand for positions along ``dims``."""
        wanted = tuple(dims)
        return tuple(n for n, b in enumerate(self.warps) if b is not None and b[0] in wanted)

    def register_run(self, dim: str) -> int:
        """Neighbours along ``dim`` in consecutive registers: the widest vector of a thread."""
        run = 0
        while run < len(self.registers) and self.registers[run] == (dim, run):
            run += 1
        return 1 << run

    def register_in(self, other: Layout, variable: str) -> str:
        """C text: where ``other``, which has some of this layout's register bits, keeps what
        register ``variable`` of this one needs.
        """
        place = {bit: n for n, bit in enumerate(other.registers)}
        missing = [bit for bit in other.registers if bit not in self.registers]
        if missing:
            raise ValueError(f"register bits {missing} are not in {self}")
        bits = [(n, place[bit]) for n, bit in enumerate(self.registers) if bit in place]
        parts = moved_bits(variable, bits, len(self.registers))
        return " + ".join(parts) if parts else "0"

    def __str__(self) -> str:
        def text(bits: Sequence[Bit | None]) -> str:
            return " ".join("-" if b is None else f"{b[0]}{b[1]}" for b in bits)

        return f"[{text(self.registers)} | {text(self.lanes)} | {text(self.warps)}]"


def moved_bits(
    variable: str, bits: Sequence[tuple[int, int]], width: int | None = None
) -> list[str]:
    """C texts that sum up to ``variable`` with its bit ``n`` moved to ``m`` for each ``(n, m)``;
    bits that stay neighbours move together. The variable has ``width`` bits, if that is known.
    """
    runs: list[list[int]] = []  # first bit, where it goes, how many
    for source, target in sorted(bits):
        last = runs[-1] if runs else None
        if last and source == last[0] + last[2] and target == last[1] + last[2]:
            last[2] += 1
        else:
            runs.append([source, target, 1])
    texts = []
    for source, target, count in runs:
        mask = (1 << count) - 1
        text = variable if source == 0 else f"({variable} >> {source})"
        if source + count != width:
            text = f"({text} & {mask})"
        texts.append(f"({text} << {target})" if target else text)
    return texts


def bits_of(dims: Sequence[str], extents: Mapping[str, int]) -> tuple[Bit, ...]:
    """All bits of a tile, those of the last dimension lowest; extents are powers of two."""
    return tuple((d, power) for d in reversed(dims) for power in range(extents[d].bit_length() - 1))


def covers(layout: Layout, dims: Sequence[str], extents: Mapping[str, int]) -> bool:
    """Whether every element of the tile lies somewhere, and none twice in one thread."""
    return sorted(layout.bits()) == sorted(bits_of(dims, extents))
