"""Chained accumulation: a matmul that adds to the registers of another sum.

In X W + (X A) C the matmul by C accumulates into the sums of X W, so that there is one set of them
and no addition at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.analysis.chained_sums import chained_pair
from mirage_py.codegen.cuda.layout.fragments import FMA
from mirage_py.codegen.cuda.layout.layout_choice import Layouts


@dataclass(frozen=True, slots=True)
class AccumulationChains:
    """``first``: what began the sums with which each matmul goes on. ``by_addition``: the
    additions that this leaves nothing to do, with their matmul.
    """

    first: dict[int, int]
    by_addition: dict[int, int]


def accumulation_chains(facts: BlockAnalysis, layouts: Layouts) -> AccumulationChains:
    """Those whose layouts are the same, and whole where tensor cores have them."""
    found = AccumulationChains({}, {})
    for number in range(len(facts.block.nodes)):
        pair = chained_pair(facts, number)
        if pair is None:
            continue
        first, last = pair
        wholes = [layouts.own[n] for n in (*pair, number)]
        parts = [layouts.parts[n] for n in pair]
        is_fma = layouts.mmas[last].fragments.kind == FMA
        if not is_fma and all(layout == wholes[0] for layout in (*wholes, *parts)):
            found.first[last], found.by_addition[number] = first, last
    return found
