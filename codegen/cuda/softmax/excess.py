"""The excess of codes: what an operand of a matmul is too much, times sums of the other operand.

Codes of four bits are halves as soon as they are bits of a significand: 16 more than the code,
which is what it stands for and its zero point. A subtraction for each pair would be a third of what
a thread does with it. One more tile of the tensor cores, all of it minus that excess, sums what is
to be taken off.
"""

from __future__ import annotations

from mirage_py.codegen.cuda.layout.mma_partitioning import MmaPartition
from mirage_py.codegen.cuda.text.value import Value
from mirage_py.codegen.cuda.writer.emission import Emission


def excess_sums(sums: Value) -> str:
    """The registers of what is to be taken off the sums of a matmul."""
    return f"{sums.name}_excess"


def declare_excess(out: Emission, sums: Value, plan: MmaPartition) -> None:
    """Those registers: four for each tile of the other operand."""
    tiles = plan.fragments.column_tiles if plan.codes_left else plan.fragments.row_tiles
    out.line(f"alignas(16) float {excess_sums(sums)}[{4 * tiles}] = {{}};")


def take_off_excess(out: Emission, sums: Value, plan: MmaPartition) -> None:
    """Add them to the sums of each warp."""
    row = 4 * plan.fragments.column_tiles
    with out.unrolled("r", sums.words) as r:
        place = f"{r} % {row}" if plan.codes_left else f"{r} / {row} * 4 + {r} % 4"
        out.line(f"{sums.word(r)} += {excess_sums(sums)}[{place}];")
