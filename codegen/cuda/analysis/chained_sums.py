"""Accumulation chains as the block graph shows them: matmuls whose result is only added to another
sum.
"""

from __future__ import annotations

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.ugraph.ir.dtypes import F32


def chained_pair(facts: BlockAnalysis, number: int) -> tuple[int, int] | None:
    """For an addition of two sums that nothing else reads, outside of loops: the sums that come
    first, a matmul or an accumulator of matmuls, and the matmul that goes on with them.
    """
    node = facts.block.nodes[number]
    if node.op != "add" or facts.dtypes[number] != F32 or not facts.sums_at_end(number):
        return None
    first, last = node.args
    if first == last or not all(_is_sum(facts, a, number) for a in node.args):
        return None
    # The later one goes on: a matmul of what a third one made.
    if (_goes_on(facts, first, number), _makes_operand(facts, first)) > (
        _goes_on(facts, last, number),
        _makes_operand(facts, last),
    ):
        first, last = last, first
    return (first, last) if _goes_on(facts, last, number) else None


def chain_start(facts: BlockAnalysis, product: int) -> int | None:
    """What began the sums with which a matmul goes on."""
    for user in facts.users[product]:
        pair = chained_pair(facts, user)
        if pair is not None and pair[1] == product:
            return pair[0]
    return None


def _is_sum(facts: BlockAnalysis, number: int, addition: int) -> bool:
    held = (number in facts.dots and number not in facts.fused) or number in facts.fused_by
    return held and facts.users[number] == (addition,) and facts.dtypes[number] == F32


def _goes_on(facts: BlockAnalysis, number: int, addition: int) -> bool:
    return number in facts.dots and facts.section(number) == facts.section(addition)


def _makes_operand(facts: BlockAnalysis, number: int) -> bool:
    return number in facts.dots and any(
        facts.comes_from_dot(a) for a in facts.block.nodes[number].args
    )
