"""Code operands: operands of a matmul that are computed from integers of a byte, as weights of four
and eight bits are. A thread loads those that it multiplies, 16 bytes at a time.

The sum over K may go in any order, as long as both operands agree. So the bits of K change places:
a thread holds neighbours in memory, of which an instruction takes some in each of its steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.analysis.codes import CodeOrder
from mirage_py.codegen.cuda.layout.fragments import Bits
from mirage_py.codegen.cuda.layout.staging import vector_run
from mirage_py.codegen.cuda.text.layout import LANE_BITS, Bit, Layout
from mirage_py.codegen.tiling.contiguity import steps_along
from mirage_py.ugraph.ir.dtypes import I8, U8
from mirage_py.ugraph.operators import ELEMENTWISE, operator

_ACCESS_BITS = 4
_ACCESS = 1 << _ACCESS_BITS
_LANE_BITS = 2
# As many lie side by side along K, or a tile of codes goes to a matmul as any other integers.
CODES_SIDE_BY_SIDE = 1 << _ACCESS_BITS + _LANE_BITS


@dataclass(frozen=True, slots=True)
class PrivateTile:
    """A tile of codes in shared memory of which each thread reads what it has copied itself, so
    that several iterations' loads are under way and hold no registers. ``layout`` is that of the
    registers; neighbouring threads have neighbouring 16 bytes.
    """

    layout: Layout

    @property
    def pieces(self) -> Layout:
        """The layout with a register for each copy of 16 bytes."""
        return Layout(self.layout.registers[_ACCESS_BITS:], self.layout.lanes, self.layout.warps)

    @property
    def piece_step(self) -> int:
        """Bytes from one copy of a thread to its next one."""
        return 1 << _ACCESS_BITS + LANE_BITS + len(self.layout.warps)

    @property
    def size_bytes(self) -> int:
        """Bytes of one tile."""
        return self.piece_step * self.pieces.register_count


def private_tiles(
    facts: BlockAnalysis, own: Mapping[int, Layout], depths: Mapping[int, int]
) -> dict[int, PrivateTile]:
    """The loads of codes that are copied ahead of a loop of several stages."""
    found = {}
    for load, layout in own.items():
        node, section = facts.block.nodes[load], facts.section(load)
        if node.op != "load" or not is_code(facts, load) or depths.get(section, 1) < 2:
            continue
        bits = layout.registers[:_ACCESS_BITS]
        dim = bits[0][0] if bits else ""
        run = layout.register_run(dim) if dim in node.dims else 1
        is_wide = run >= _ACCESS and vector_run(facts, load, dim, _ACCESS) == _ACCESS
        moves = facts.block.sections[section].loop in node.dims
        if is_wide and moves and facts.reads_in_registers(load):
            found[load] = PrivateTile(layout)
    return found


def is_code(facts: BlockAnalysis, load: int) -> bool:
    """Whether a load is of integers of a byte."""
    return facts.tensors[facts.block.nodes[load].access.tensor].dtype in (I8, U8)


def code_load(facts: BlockAnalysis, operand: int) -> int | None:
    """The load of codes that an operand is computed from, the largest; None where there is none."""
    todo, loads = [operand], set[int]()
    while todo:
        number = todo.pop()
        node = facts.block.nodes[number]
        if node.op == "load":
            if is_code(facts, number):
                loads.add(number)
        elif operator(node.op).kind == ELEMENTWISE:
            todo.extend(node.args)
    return max(sorted(loads), key=facts.elements, default=None)


def permuted(
    facts: BlockAnalysis, load: int, inner: Bits, order: CodeOrder = CodeOrder.APART
) -> Bits | None:
    """The bits of K with those first that a thread holds of codes, but for two that lanes have;
    None where too few neighbours along K lie side by side.
    """
    side_by_side = contiguous(facts, load, inner)
    if len(side_by_side) < _ACCESS_BITS + _LANE_BITS:
        return None
    inside = [b for b in inner if b[0] not in facts.live(load)]
    first, second, *others = side_by_side[:_ACCESS_BITS]
    # Of bytes two apart one mask takes both codes out of a word, where each has its half.
    is_apart = order is CodeOrder.APART
    held = (second, *inside, first, *others) if is_apart else (*inside, first, second, *others)
    lanes = side_by_side[_ACCESS_BITS : _ACCESS_BITS + _LANE_BITS]
    rest = tuple(b for b in inner if b not in (*held, *lanes))
    return (held[0], *lanes, *held[1:], *rest)


def outside_pieces(facts: BlockAnalysis, load: int, inner: Bits) -> Bits:
    """The bits of K that are neither in a thread's access of 16 bytes nor of its lane."""
    inside = contiguous(facts, load, inner)[: _ACCESS_BITS + _LANE_BITS]
    return tuple(b for b in inner if b not in inside and b[0] in facts.live(load))


def contiguous(facts: BlockAnalysis, load: int, inner: Bits) -> Bits:
    """The bits of K along which codes lie side by side in memory, the lowest first."""
    access = facts.block.nodes[load].access
    tensor = facts.tensors[access.tensor]
    steps: dict[int, Bit] = {}
    for expr, stride in zip(access.index, tensor.element_strides, strict=True):
        for bit in inner if stride == 1 else ():
            apart, _ = steps_along(expr, bit[0], 1 << bit[1] + 1)
            if apart:
                steps[apart << bit[1]] = bit
    found: list[Bit] = []
    while (step := 1 << len(found)) in steps:
        found.append(steps[step])
    return tuple(found)


def as_stored(facts: BlockAnalysis, load: int, layout: Layout) -> Layout:
    """The layout of a load of codes with the registers of a thread as they lie in memory."""
    held = layout.of_dims(facts.live(load))
    return as_read(held, contiguous(facts, load, held.registers))


def as_read(layout: Layout, inner: Bits) -> Layout:
    """The layout of an operand with the registers of a thread as its loads fill them."""
    along = [b for b in inner if b in layout.registers]
    others = [b for b in layout.registers if b not in along]
    return Layout((*along, *others), layout.lanes, layout.warps)
