"""MMA partitioning: which operand gives the rows, and which part each warp computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.analysis.codes import CodeOrder, codes_of
from mirage_py.codegen.cuda.layout.code_operands import (
    as_read,
    code_load,
    outside_pieces,
    permuted,
)
from mirage_py.codegen.cuda.layout.fragments import (
    BYTE,
    FMA,
    HALF,
    TF32,
    Bits,
    Fragments,
    Kind,
    Shape,
    fragments,
)
from mirage_py.codegen.cuda.layout.staging import Staged
from mirage_py.codegen.cuda.layout.wgmma_partitioning import group_warps
from mirage_py.codegen.cuda.text.layout import Bit, Layout, bits_of
from mirage_py.errors import ScheduleError
from mirage_py.ugraph.ir.dtypes import BF16, F8E4M3, DType
from mirage_py.ugraph.ir.launch_choices import Precision
from mirage_py.ugraph.ir.launch_config import LaunchConfig

# Registers of a result up to which every warp may have all of its rows and columns, and a share of
# the inner positions; of one with codes, so that no two warps read the same of the other operand.
_MOST_PARTS = 32
_MOST_PARTS_OF_CODES = 64


@dataclass(frozen=True, slots=True)
class MmaPartition:
    """``left`` is the operand with the rows (M), ``right`` the one with the columns (N).
    ``uses_wgmma``: four warps multiply together (wgmma). ``has_codes``: an operand is computed
    from integers of a byte, the left one where ``codes_left``, and ``excess`` more than it stands
    for. ``factor`` is a value for groups of inner positions that sums of a group are multiplied by,
    in place of that operand; -1 for none.
    """

    left: int
    right: int
    dtype: DType
    fragments: Fragments
    uses_wgmma: bool = False
    has_codes: bool = False
    codes_left: bool = True
    excess: float = 0.0
    factor: int = -1

    def sides(self, facts: BlockAnalysis) -> tuple[tuple[int, Layout], tuple[int, Layout]]:
        """The nodes that hold the operands, and the layouts in which these are wanted."""
        left, right = facts.root(self.left), facts.root(self.right)
        return (left, self.fragments.left), (right, self.fragments.right)


def beside_codes(
    facts: BlockAnalysis, staged: Mapping[int, Staged], mmas: Iterable[MmaPartition]
) -> dict[int, Staged]:
    """The tiles that are multiplied by codes: a warp's lanes read several of their panels."""
    operands = (n for plan in mmas if plan.has_codes for n, _ in plan.sides(facts))
    return {
        n: replace(staged[n], tile=replace(staged[n].tile, panels_flip=True))
        for n in operands
        if n in staged
    }


def partition_mma(
    facts: BlockAnalysis,
    number: int,
    options: LaunchConfig,
    given: tuple[Bit | None, ...] | None,
    first: MmaPartition | None = None,
) -> MmaPartition:
    """The plan of the matmul at ``number``; ``given`` are the warps of an operand that another
    matmul made, which stays where it is if it can, ``first`` is the plan of the matmul with whose
    sums this one goes on.
    """
    node, roles = facts.block.nodes[number], facts.tiling.roles(number)
    left, right = node.args
    rows, columns = facts.tiles_order(roles.left), facts.tiles_order(roles.right)
    inner = facts.tiles_order(roles.contracted)
    result = facts.live(number)
    swap = result.index(columns[0]) < result.index(rows[0])
    made = [a for a in (left, right) if facts.comes_from_dot(a)]
    contracted_next = facts.contracted_by_next(number)
    if contracted_next:
        # The columns of a result that is multiplied again are its inner positions then.
        swap = set(rows) <= set(contracted_next)
    elif first is not None:
        swap = set(columns) == {b[0] for b in first.fragments.shape.rows}
        given = first.fragments.result.warps
    elif len(made) == 1 and given is not None:
        # What stays its rows needs no other layout for what goes with them.
        swap = made[0] == right
    if swap:
        left, right, rows, columns = right, left, columns, rows
    extents = {d: facts.tiling.padded(d, facts.section(number)) for d in (*result, *inner)}
    shape = Shape(*(bits_of(side, extents) for side in (rows, columns, inner)))
    kind = mma_kind(facts, number, options)
    in_parts = _may_be_in_parts(facts, number)
    may_be_pairs = options.excess_codes and facts.dtypes[facts.root(left)] == BF16
    coded = _coded(facts, (left, right), shape, may_be_pairs) if kind == HALF else None
    groups, of_warps = None, shape.inner[kind.inner :]
    if coded is not None:
        shape, of_warps = coded
    else:
        groups = group_warps(facts, (left, right), shape, kind, options, given, in_parts)
        if groups is None and kind == BYTE:
            raise ScheduleError(
                f"%{number}, a matmul of float8",
                where=facts.block.name,
                why="it goes by wgmma alone (sm_90a): 64 rows or more for four warps or more, and "
                "operands in memory whose contiguous axis is the summed one",
                repair='use backend="triton", or store the weights as [N, K]',
            )
    most = _MOST_PARTS if coded is None else _MOST_PARTS_OF_CODES
    warps = groups or _warps(facts, number, options, (kind, shape, of_warps, most), given)
    found = fragments(kind, shape, warps)
    plan = MmaPartition(
        left, right, facts.dtypes[left], found, groups is not None, coded is not None
    )
    if coded is None or not options.excess_codes:
        return plan
    without = replace(options, excess_codes=False)
    return _with_excess(facts, number, plan) or partition_mma(facts, number, without, given, first)


def _coded(
    facts: BlockAnalysis, operands: Sequence[int], shape: Shape, may_be_pairs: bool
) -> tuple[Shape, Bits] | None:
    """The shape with the bits of K as an operand of codes is read, and those of them that warps may
    share out; None without such an operand.
    """
    loads = [code_load(facts, facts.root(a)) for a in operands]
    known = [load for load in loads if load is not None]
    if len(known) != 1:
        return None
    order = CodeOrder.APART
    if may_be_pairs:
        found = codes_of(facts, facts.root(operands[loads.index(known[0])]))
        order = CodeOrder.BYTE if found is not None and found.is_pair else order
    inner = permuted(facts, known[0], shape.inner, order)
    if inner is None:
        return None
    return replace(shape, inner=inner), outside_pieces(facts, known[0], inner)


def _with_excess(facts: BlockAnalysis, number: int, plan: MmaPartition) -> MmaPartition | None:
    """The plan with the zero point of codes and scales of groups left to sums: of codes that this
    matmul alone reads and whose sums are a loop's; None for others. 16 and a code are a number of
    bfloat16.
    """
    operands = (facts.root(plan.left), facts.root(plan.right))
    is_left = code_load(facts, operands[0]) is not None
    operand, state = operands[0 if is_left else 1], facts.fused.get(number)
    codes = codes_of(facts, operand)
    readers = [n for n in facts.emitted if operand in facts.inputs(n)]
    is_sum = state is not None and facts.block.nodes[state].op == "accum_sum"
    if codes is None or not is_sum or readers not in ([number], [state]):
        return None
    if _is_read_on_the_way(facts, codes.load, operand):
        return None
    wanted = plan.fragments.left if is_left else plan.fragments.right
    if codes.order(as_read(wanted, plan.fragments.shape.inner).registers) is None:
        return None
    # Threads have the rows of their codes in sums, too, and other columns.
    if codes.factor >= 0 and not (is_left and _is_of_groups(facts, codes.factor, plan.fragments)):
        return None
    has_excess = codes.kind == "u4" and facts.dtypes[operand] == BF16
    excess = codes.excess if has_excess else 0.0
    return replace(plan, codes_left=is_left, excess=excess, factor=codes.factor)


def _is_read_on_the_way(facts: BlockAnalysis, load: int, operand: int) -> bool:
    """Whether anything but an operand needs what is made of codes on the way to it."""
    nodes = facts.block.nodes
    made, on_the_way = {load}, {operand}
    for n in range(load + 1, operand + 1):
        if any(a in made for a in nodes[n].args):
            made.add(n)
    for n in range(operand, load, -1):
        if n in on_the_way:
            on_the_way.update(a for a in nodes[n].args if a in made and a != load)
    return any(
        a in on_the_way and a != operand and n not in on_the_way
        for n, node in enumerate(nodes)
        for a in node.args
    )


def _is_of_groups(facts: BlockAnalysis, factor: int, found: Fragments) -> bool:
    """Whether a factor is the same for all that a warp sums in consecutive steps."""
    live = facts.live(factor)
    inner = [b for b in found.shape.inner if b[0] in live]
    last = [b for b in found.steps if b in inner]
    is_last = last == [*found.steps[len(found.steps) - len(last) :]]
    others = {b for b in inner if b not in last} - {*found.left.warps}
    return is_last and not others


def mma_kind(facts: BlockAnalysis, number: int, options: LaunchConfig) -> Kind:
    """By which instructions a matmul goes: float32 to tensor cores only if asked for, as it is or
    in parts.
    """
    dtype = facts.dtypes[facts.block.nodes[number].args[0]]
    if dtype.is_half:
        return HALF
    if dtype == F8E4M3:
        return BYTE
    return TF32 if options.precision in (Precision.TF32, Precision.TF32X3) else FMA


def _warps(
    facts: BlockAnalysis,
    number: int,
    options: LaunchConfig,
    found: tuple[Kind, Shape, Bits, int],
    given: tuple[Bit | None, ...] | None,
) -> tuple[Bit | None, ...]:
    count = (options.num_warps - 1).bit_length()
    kind, shape, inner, most = found
    sides = (shape.rows[kind.rows :], shape.columns[kind.columns :], inner)
    free = [b for side in sides for b in side]
    if given is not None and any(b in free for b in given):
        return tuple(b if b in free else None for b in given)
    if options.warp_grid:
        return _as_asked(options.warp_grid, sides, count)
    registers = (1 << len(shape.rows) + len(shape.columns)) // 32
    return _by_rule(sides, count, registers <= most, _may_be_in_parts(facts, number))


def _may_be_in_parts(facts: BlockAnalysis, number: int) -> bool:
    return number in facts.fused or facts.sums_at_end(number)


def _as_asked(counts: Sequence[int], sides: Sequence[Bits], count: int) -> tuple[Bit | None, ...]:
    bits: list[Bit | None] = []
    for side, wanted in zip(sides, counts, strict=True):
        bits += _top(side, (wanted - 1).bit_length())
    return tuple((bits + [None] * count)[:count])


def _by_rule(
    sides: Sequence[Bits], count: int, is_small: bool, may_be_in_parts: bool
) -> tuple[Bit | None, ...]:
    """Rows, then columns, then inner positions; inner positions first where the result is so small
    that every warp can hold all of it.
    """
    rows, columns, inner = sides
    order = [rows, columns]
    if may_be_in_parts:
        order = [inner, *order] if is_small else [*order, inner]
    bits: list[Bit | None] = []
    for side in order:
        bits += _top(side, count - len(bits))
    return tuple(bits + [None] * (count - len(bits)))


def _top(side: Bits, count: int) -> Bits:
    return side[len(side) - min(count, len(side)) :]
