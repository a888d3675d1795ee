"""Epilogue hoisting: a function of a stored value and numbers is computed where it is stored."""

from __future__ import annotations

from mirage_py.search.rank.forms import sort_of
from mirage_py.search.stabilize.epilogue_hoisting import with_hoisted_epilogues
from mirage_py.search.tilings.kinds import CHAIN
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


def _block(ugraph: UGraph, number: int) -> BlockGraph:
    block = ugraph.kernels[number]
    assert isinstance(block, BlockGraph)
    return block


def ops(ugraph: UGraph, number: int) -> list[str]:
    return [n.op for n in _block(ugraph, number).nodes]


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


_LAYERS = """ugraph layers
dim m = 5
dim d = 8
dim n = 7
dim o = 6
input X[5, 8] : bf16
input A[8, 7] : bf16
input B[7, 6] : {other}
output O[5, 6] : bf16
tensor mid0[5, 7] : f32
program {{
  %0 = const 0.0
  %1 = load X[m, d]
  %2 = load A[d, n]
  %3 = load B[n, o]
  %4 = matmul[d] %1, %2 : [m, n]
  %5 = maximum %0, %4 : [m, n]
  %6 = matmul[n] %5, %3 : [m, o]
  return O[m, o] = %6
}}
kernel first {{
  grid m by ?, n by ?
  %0 = load X[m, d]
  %1 = load A[d, n]
  %2 = matmul[d] %0, %1 : [m, n]
  store mid0[m, n] = %2
}}
kernel last {{
  grid m by ?, o by ?
  %0 = const 0.0
  loop n by ? {{
    %1 = load mid0[m, n]
    %2 = load B[n, o]
    %3 = maximum %0, %1 : [m, n]
    %4 = matmul[n] %3, %2 : [m, o]
    %5 = accum_sum %4 : [m, o]
  }}
  store O[m, o] = %5
}}
"""


def test_a_section_is_left_out_with_all_that_was_in_it() -> None:
    found = with_hoisted_epilogues(parse_ugraph(_LAYERS.format(other="bf16"), "text"))
    validate_ugraph(found)
    assert ops(found, 0)[-2:] == ["maximum", "store"]
    assert "maximum" not in ops(found, 1)
    assert [s.loop for s in _block(found, 1).sections] == ["n", None]
    assert field_test(found.program, found, seed=0).equal


def test_kernels_whose_matmuls_read_memory_alone_are_a_sort_of_their_own() -> None:
    """Norm and matmul, in two kernels, had no plan: by lower bounds sixteen others came first."""
    computed = parse_ugraph(_LAYERS.format(other="bf16"), "text")
    plain = with_hoisted_epilogues(computed)
    assert sort_of(computed) == (CHAIN, 2, False)
    assert sort_of(plain) == (CHAIN, 2, True)


def test_operands_are_stored_in_the_type_that_matmuls_round_them_to() -> None:
    found = with_hoisted_epilogues(parse_ugraph(_LAYERS.format(other="bf16"), "text"))
    assert [t.dtype.name for t in found.intermediates] == ["bf16"]
    # A matmul with float32 beside it takes all digits.
    exact = with_hoisted_epilogues(parse_ugraph(_LAYERS.format(other="f32"), "text"))
    assert [t.dtype.name for t in exact.intermediates] == ["f32"]


_TWO_GRIDS = """ugraph projections
dim t = 6
dim s = 10
dim n = 8
dim d = 7
input X[6, 7] : f16
input Z[10, 7] : f16
input W[8, 7] : f16
input V[8, 7] : f16
output Q[6, 8] : f16
output K[10, 8] : f16
output R[10, 8] : f16
program {{
  %0 = load X[t, d]
  %1 = load W[n, d]
  %2 = matmul[d] %0, %1 : [t, n]
  %3 = load Z[s, d]
  %4 = matmul[d] %3, %1 : [s, n]
  %5 = load V[n, d]
  %6 = matmul[d] %3, %5 : [s, n]
  return Q[t, n] = %2
  return K[s, n] = %4
  return R[s, n] = %6
}}
kernel first {{
  grid {grid}
  %0 = load X[t, d]
  %1 = load W[n, d]
  %2 = matmul[d] %0, %1 : [t, n]
{beside}  store Q[t, n] = %2
{stored}}}
kernel last {{
  grid s by ?, n by ?
  %0 = load Z[s, d]
  %1 = load W[n, d]
  %2 = matmul[d] %0, %1 : [s, n]
{alone}  store K[s, n] = %2
{kept}}}
"""
_BESIDE = "  %3 = load Z[s, d]\n  %4 = load V[n, d]\n  %5 = matmul[d] %3, %4 : [s, n]\n"
_ALONE = "  %3 = load V[n, d]\n  %4 = matmul[d] %0, %3 : [s, n]\n"


def test_matmuls_that_have_all_of_their_grid_are_such_a_sort() -> None:
    """Queries and keys of other rows, in one kernel, are computed once for each block of the other:
    by lower bounds 33 such families came before the first without.
    """
    own = {"grid": "t by ?, n by ?", "beside": "", "stored": ""}
    own |= {"alone": _ALONE, "kept": "  store R[s, n] = %4\n"}
    shared = {"grid": "t by ?, s by ?, n by ?", "beside": _BESIDE, "alone": "", "kept": ""}
    shared["stored"] = "  store R[s, n] = %5\n"
    for choices, is_apart in ((shared, False), (own, True)):
        ugraph = parse_ugraph(_TWO_GRIDS.format(**choices), "text")
        assert field_test(ugraph.program, ugraph, seed=0).equal
        assert sort_of(ugraph)[1:] == (2, is_apart)
