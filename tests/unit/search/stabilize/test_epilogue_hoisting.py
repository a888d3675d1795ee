"""Epilogue hoisting: a function of a stored value and numbers is computed where it is stored."""

from __future__ import annotations

from mirage_py.search.stabilize.epilogue_hoisting import with_hoisted_epilogues
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.ugraph.text.text_form import parse_ugraph
from mirage_py.verify.field_test.field_test import field_test

_HEAD = """ugraph scores
dim t = 6
dim s = 10
dim d = 7
input Q[6, 7] : f16
input K[10, 7] : f16
output O[6, 10] : f16
tensor mid0[10] : {dtype}
program {{
  %0 = load Q[t, d]
  %1 = load K[s, d]
  %2 = square %1 : [s, d]
  %3 = sum[d] %2 : [s]
  %4 = const 0.5
  %5 = add %3, %4 : [s]
  %6 = sqrt %5 : [s]
  %7 = matmul[d] %0, %1 : [t, s]
  %8 = div %7, %6 : [t, s]
  return O[t, s] = %8
}}
kernel first {{
  grid s by ?
  %0 = load K[s, d]
  %1 = square %0 : [s, d]
  %2 = sum[d] %1 : [s]
  store mid0[s] = %2
}}
kernel last {{
  grid t by ?, s by ?
  %0 = load Q[t, d]
  %1 = load K[s, d]
  %2 = matmul[d] %0, %1 : [t, s]
  %3 = load mid0[s]
"""
DIVIDED = """  %4 = const 0.5
  %5 = add %3, %4 : [s]
  %6 = sqrt %5 : [s]
  %7 = div %2, %6 : [t, s]
  store O[t, s] = %7
}
"""
# The stored value is needed as it is, too.
READ_TWICE = """  %4 = const 0.5
  %5 = add %3, %4 : [s]
  %6 = sqrt %5 : [s]
  %7 = div %2, %6 : [t, s]
  %8 = div %7, %3 : [t, s]
  %9 = mul %8, %3 : [t, s]
  store O[t, s] = %9
}
"""


def graph(end: str, dtype: str = "f32") -> UGraph:
    found = parse_ugraph(_HEAD.format(dtype=dtype) + end, "text")
    validate_ugraph(found)
    return found


def ops(ugraph: UGraph, number: int) -> list[str]:
    block = ugraph.kernels[number]
    assert isinstance(block, BlockGraph)
    return [n.op for n in block.nodes]


def test_the_reciprocal_root_is_stored() -> None:
    before = graph(DIVIDED)
    after = with_hoisted_epilogues(before)
    validate_ugraph(after)
    assert ops(after, 0) == [
        *("load", "square", "sum", "const", "add", "sqrt", "const", "div", "store")
    ]
    assert ops(after, 1) == ["load", "load", "matmul", "load", "mul", "store"]
    assert after.intermediates == before.intermediates
    assert field_test(before.program, after, trials=2, seed=0).equal


def test_what_is_finished_stays() -> None:
    once = with_hoisted_epilogues(graph(DIVIDED))
    assert with_hoisted_epilogues(once) is once


def test_a_value_that_is_read_in_two_ways_stays() -> None:
    before = graph(READ_TWICE)
    assert with_hoisted_epilogues(before) is before


def test_halves_stay() -> None:
    before = graph(DIVIDED, "f16")
    assert with_hoisted_epilogues(before) is before
