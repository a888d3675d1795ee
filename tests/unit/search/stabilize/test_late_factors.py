"""Factors of logits in the screen of rounding: they are where the emitters put them."""

from __future__ import annotations

from families import safe_families

from mirage_py.codegen.lowering.lowering import with_factors_as_emitted
from mirage_py.frontend.spec import parse
from mirage_py.search.enumerate.search import search
from mirage_py.search.tilings.kinds import describe
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.verify.rounding.float_screen import FloatScreen

# 1 / sqrt(128) is no power of two: a query that is divided by it is rounded to half once more.
HEADS_OF_128 = """
B = 2, R = 8, S = 2048, D = 128
Q[B, R, D], K[B, S, D], V[B, S, D] : f16
let scores[b, r, s] = sum[d](Q[b, r, d] * K[b, s, d]) / sqrt(D)
O[b, r, e] = sum[s]( softmax[s](scores[b, r, s]) * V[b, s, e] )
"""


def test_split_attention_with_a_running_maximum_is_kept():
    safe = safe_families(search(parse(HEADS_OF_128)).families).ugraphs
    split = [u for u in safe if describe(u).startswith("split s")]
    first = [k for u in split for k in u.kernels[:1] if isinstance(k, BlockGraph)]
    assert any(section.loop == "s" for kernel in first for section in kernel.sections)


def test_a_divided_query_is_refused_only_where_it_would_be_rounded():
    families = search(parse(HEADS_OF_128)).families
    screen = FloatScreen()
    safe = safe_families(families).ugraphs
    early = [u for u in safe if with_factors_as_emitted(u) != u]
    assert any(screen.fault(u) for u in early)
