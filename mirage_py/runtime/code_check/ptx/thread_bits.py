"""The bits of ``%tid.x`` that a register may depend on. Threads that differ only in other bits hold
the same value there.

Triton lets several threads keep the same element, and all of them store it. That is a race unless
they store the same. What two threads load from one place is the same as long as nothing races; a
sum over a butterfly of shuffles does not depend on the bit that was exchanged, but for rounding
where a product was fused with the first of these sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_

from mirage_py.runtime.code_check.ptx.flow import EXIT, flow_of, names_in, written
from mirage_py.runtime.code_check.ptx.integers import is_integer
from mirage_py.runtime.code_check.ptx.ptx import Entry, Instruction, Vector

# For each bit of a register the bits of the thread's number.
Bits = tuple[int, ...]
ALL = (1 << 10) - 1
_LANES = 31
_WARP_GROUP = 127
_WIDTH = 64
_NONE: Bits = (0,) * _WIDTH
_SPECIAL: Mapping[str, Bits] = {
    "%tid.x": tuple(1 << n if n < 10 else 0 for n in range(_WIDTH)),
    "%laneid": tuple(1 << n if n < 5 else 0 for n in range(_WIDTH)),
    "%warpid": tuple(1 << n + 5 if n < 5 else 0 for n in range(_WIDTH)),
}
_COMMUTES = ("add", "max", "min", "mul", "and", "or", "xor", "fma")


def stored_bits(entry: Entry) -> dict[int, int]:
    """For each line that stores to shared memory: the bits that what it stores depends on.

    A data-flow analysis: what a register may depend on at the start of each basic block.
    """
    flow = flow_of(entry)
    starts: dict[int, dict[str, Bits]] = {0: {}}
    lines: dict[int, int] = {}
    ways = 0
    waiting = [0]
    while waiting:
        at = waiting.pop()
        block = flow.blocks[at]
        known = _Known(dict(starts[at]))
        for i in entry.instructions[block.first : block.stop]:
            if i.parts[0] in ("st", "stmatrix", "cp") and len(i.operands) > 1:
                lines[i.line] = known.stored(i)
            known.step(i)
        if block.branch is not None:
            ways |= known.whole(block.branch.guard)
        for to in block.successors:
            if to == EXIT:
                continue
            before = starts.get(to)
            merged = known.bits if before is None else _merged(before, known.bits)
            if before is None or merged != before:
                starts[to] = dict(merged)
                if to not in waiting:
                    waiting.append(to)
    # Which way a thread has taken decides, too.
    return {line: bits | ways for line, bits in lines.items()}


def _merged(a: Mapping[str, Bits], b: Mapping[str, Bits]) -> dict[str, Bits]:
    found = dict(a)
    for name, bits in b.items():
        before = found.get(name)
        found[name] = bits if before is None or before == bits else _joined(before, bits)
    return found


class _Known:
    """What registers depend on at one place of a basic block."""

    def __init__(self, bits: dict[str, Bits]) -> None:
        self.bits = bits
        # What has come from the lane whose number differs in one bit: of which register, and it.
        self.exchanged: dict[str, tuple[str, int]] = {}
        self.products: dict[str, tuple[object, ...]] = {}

    def step(self, i: Instruction) -> None:
        """Go on past an instruction."""
        names = written(i)
        if not names:
            return
        found = self._result(i)
        if i.guard:
            found = _joined(found, (self.whole(i.guard),) * _WIDTH)
        for name in names:
            self.bits[name] = _joined(found, self._of(name)) if i.guard else found
            self.exchanged = {
                to: pair for to, pair in self.exchanged.items() if name not in (to, pair[0])
            }
            self.products = {
                to: pair for to, pair in self.products.items() if name != to and name not in pair
            }
        if i.parts[0] == "shfl" and "bfly" in i.parts and isinstance(i.operands[2], int):
            source, flipped = str(i.operands[1]), i.operands[2]
            if source not in names and not i.guard and flipped & (flipped - 1) == 0:
                self.exchanged[names[0]] = source, flipped
        if i.parts[0] == "mul" and not i.guard and names[0] not in i.operands[1:]:
            self.products[names[0]] = i.operands[1:]

    def stored(self, i: Instruction) -> int:
        """What decides what a store writes."""
        if i.parts[0] == "cp":
            return self._mixed(i.operands[1:])
        return self.whole(i.operands[1]) | (_LANES if i.parts[0] == "stmatrix" else 0)

    def whole(self, operand: object) -> int:
        """Of all bits of all registers that an operand names."""
        return reduce(or_, (x for name in names_in(operand) for x in self._of(name)), 0)

    def _mixed(self, operands: Sequence[object]) -> int:
        return reduce(or_, map(self.whole, operands), 0)

    def _of(self, operand: object) -> Bits:
        if not isinstance(operand, str):
            return (self.whole(operand),) * _WIDTH
        return self.bits.get(operand) or _SPECIAL.get(operand, _NONE)

    def _result(self, i: Instruction) -> Bits:
        name, sources = i.parts[0], i.operands[1:]
        mixed = self._mixed(sources)
        bitwise = _BITWISE.get(name)
        one = mixed
        if name in ("mma", "ldmatrix", "elect", "activemask", "match"):
            one = mixed | _LANES
        elif name == "wgmma":
            one = mixed | self.whole(i.operands[0]) | _WARP_GROUP
        elif name == "atom":
            one = ALL
        elif name in ("redux", "vote"):
            one = mixed & ~_LANES
        elif name == "mbarrier":
            one = 0  # it says how long one waits, and nothing else
        elif name == "shfl":
            one = self._shuffled(i)
        elif name in _COMMUTES and (flipped := self._exchanged(sources)):
            one = mixed & ~flipped
        elif bitwise is not None and is_integer(i.parts[-1]):
            whole = not any(isinstance(o, Vector) for o in i.operands)
            found = bitwise(i, [self._of(o) for o in sources]) if whole else None
            if found is not None:
                return found
        return (one,) * _WIDTH

    def _exchanged(self, sources: Sequence[object]) -> int:
        """Where they are a register and what another lane has in it: the bit between the lanes."""
        if len(sources) == 3:  # x * y + z
            source, flipped = self.exchanged.get(str(sources[2]), ("", 0))
            return flipped if self.products.get(source) == sources[:2] else 0
        for one, other in (sources, sources[::-1]):
            source, flipped = self.exchanged.get(str(one), ("", 0))
            if source == other:
                return flipped
        return 0

    def _shuffled(self, i: Instruction) -> int:
        value, other = self.whole(i.operands[1]), self.whole(i.operands[2])
        if "bfly" in i.parts and isinstance(i.operands[2], int):
            return value
        return value & ~_LANES | other if "idx" in i.parts else value | other | _LANES


def _joined(a: Bits, b: Bits) -> Bits:
    return tuple(map(or_, a, b))


def _carried(bits: Bits) -> Bits:
    """Of a sum: each bit depends on all lower ones."""
    total, found = 0, []
    for x in bits:
        total |= x
        found.append(total)
    return tuple(found)


def _kept(i: Instruction, args: Sequence[Bits]) -> Bits | None:
    """Of an ``and`` with a constant."""
    for constant, other in zip(i.operands[1:], reversed(args), strict=True):
        if isinstance(constant, int):
            return tuple(x if constant >> n & 1 else 0 for n, x in enumerate(other))
    return _joined(*args)


def _left(i: Instruction, args: Sequence[Bits]) -> Bits | None:
    count = i.operands[2]
    if not isinstance(count, int) or not 0 <= count < _WIDTH:
        return None
    return ((0,) * count + args[0])[:_WIDTH]


def _right(i: Instruction, args: Sequence[Bits]) -> Bits | None:
    count, bits = i.operands[2], int(i.parts[-1][1:])
    if not isinstance(count, int) or not 0 <= count < bits:
        return None
    filled = args[0][bits - 1] if i.parts[-1][0] == "s" else 0
    return (args[0][count:bits] + (filled,) * _WIDTH)[:_WIDTH]


def _field(i: Instruction, args: Sequence[Bits]) -> Bits | None:
    at, length = i.operands[2:4]
    if not isinstance(at, int) or not isinstance(length, int) or not length:
        return None
    found = args[0][at : at + length]
    return (found + (found[-1] if i.parts[-1][0] == "s" else 0,) * _WIDTH)[:_WIDTH]


def _converted(i: Instruction, args: Sequence[Bits]) -> Bits | None:
    kind = i.parts[-1]
    bits = int(kind[1:])
    return (args[0][:bits] + (args[0][bits - 1] if kind[0] == "s" else 0,) * _WIDTH)[:_WIDTH]


def _sum(i: Instruction, args: Sequence[Bits]) -> Bits | None:
    return _carried(reduce(_joined, args))


_BITWISE: Mapping[str, Callable[[Instruction, Sequence[Bits]], Bits | None]] = {
    "mov": lambda i, a: a[0],
    "cvta": lambda i, a: a[0],
    "and": _kept,
    "or": lambda i, a: _joined(*a),
    "xor": lambda i, a: _joined(*a),
    "not": lambda i, a: a[0],
    "shl": _left,
    "shr": _right,
    "bfe": _field,
    "cvt": _converted,
    "add": _sum,
    "sub": _sum,
    "mul": _sum,
    "mad": _sum,
}
