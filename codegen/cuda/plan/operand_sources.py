"""Operand sources of wgmma: tiles in shared memory, by descriptors, or registers.

Register-resident left operands of wgmma that a loop keeps from one iteration to the next are
miscompiled by ptxas 12.8 and 13.0. If a loop computes the operand of another wgmma in as many
registers, and a branch lies between the two, both get the same registers: from the second iteration
on the first wgmma silently reads what was computed for the second. Such a branch comes from the
vote of the launch option ``rescaling``, the spin wait for row reductions of producer warps, and the
slow paths of operators such as division. So the operand is copied to other registers in each
iteration; ptxas keeps those apart. On an H200 that costs less than reading the operand from shared
memory again, by ``ldmatrix`` or by a descriptor.

Machine code that still has the fault is refused (``runtime/sass/shared_registers.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.layout.fragments import TF32
from mirage_py.codegen.cuda.layout.layout_choice import Layouts
from mirage_py.codegen.cuda.layout.wgmma_partitioning import Matrix, matrix_of
from mirage_py.ugraph.ir.launch_choices import OverlapMode
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.operators import named

# Words of a left operand in registers; larger ones are read from shared memory again and again.
_MOST_WORDS = 32
_BRANCHING = named(lambda o: o.branches)


@dataclass(frozen=True, slots=True)
class OperandSources:
    """For each matmul by wgmma: ``sides``, the nodes of its operands, and ``lefts``, the left one
    as a descriptor says it where it is read from shared memory (None: from registers).
    """

    sides: Mapping[int, tuple[int, int]]
    lefts: Mapping[int, Matrix | None]

    def is_tile(self, product: int, operand: int) -> bool:
        """Whether wgmma reads an operand of a matmul from shared memory."""
        if product not in self.lefts:
            return False
        return operand == self.sides[product][1] or self.lefts[product] is not None

    @property
    def tiles(self) -> tuple[int, ...]:
        """Loads whose tiles descriptors point to."""
        return tuple(n for p, both in self.sides.items() for n in both if self.is_tile(p, n))


def operand_sources(
    facts: BlockAnalysis, layouts: Layouts, options: LaunchConfig
) -> OperandSources:
    """Those of a kernel's matmuls."""
    # 168 registers a thread are the most that leave room for two blocks of five warps.
    most = 0 if options.overlap is OverlapMode.ACROSS else _MOST_WORDS
    sides: dict[int, tuple[int, int]] = {}
    lefts: dict[int, Matrix | None] = {}
    for product, plan in layouts.mmas.items():
        if plan.uses_wgmma:
            left, shape = facts.root(plan.left), plan.fragments.shape
            is_here = facts.section(left) == facts.section(product)
            may_stay = not is_here and plan.fragments.left.register_count // 2 <= most
            # TMA rounds to TF32 what it loads to shared memory.
            may_stay &= plan.fragments.kind != TF32
            lefts[product] = None if may_stay else matrix_of(facts, left, shape.rows, shape.inner)
            sides[product] = left, facts.root(plan.right)
    return OperandSources(sides, lefts)


def overwritten_operands(
    facts: BlockAnalysis,
    layouts: Layouts,
    sources: OperandSources,
    branching: Collection[int],
    late: Collection[int],
) -> tuple[int, ...]:
    """Matmuls whose left operand another one's would overwrite. Iterations of the sections
    ``branching`` have branches; ``late`` are accumulators whose matmul is under way from one
    iteration to the next.
    """

    def makes_its_own(product: int) -> bool:
        """Whether a left operand is made in its iteration, in registers. That of a late matmul is
        made while the one before it is under way.
        """
        left = facts.root(layouts.mmas[product].left)
        return (
            product in sources.lefts
            and facts.fused.get(product) not in late
            and facts.section(left) == facts.section(product)
            and not sources.is_tile(product, left)
        )

    def words(product: int) -> int:
        return layouts.mmas[product].fragments.left.register_count

    return tuple(
        product for product, matrix in sources.lefts.items()
        if matrix is None and facts.section(product) in branching
        and facts.section(facts.root(layouts.mmas[product].left)) != facts.section(product)
        and any(
            n != product and facts.section(n) == facts.section(product)
            and words(n) == words(product) and makes_its_own(n)
            for n in layouts.mmas
        )
    )  # fmt: skip


def branching_loops(
    facts: BlockAnalysis, options: LaunchConfig, computed: Collection[int]
) -> tuple[int, ...]:
    """Sections with a loop in whose iterations warps may branch, apart from the wait at the head.
    ``computed`` are the loads whose tiles producer warps compute.
    """

    def branches(n: int) -> bool:
        return bool(options.rescaling) or n in computed or facts.block.nodes[n].op in _BRANCHING

    return tuple(
        number for number, section in enumerate(facts.block.sections)
        if section.loop is not None and any(map(branches, section.nodes))
    )  # fmt: skip
