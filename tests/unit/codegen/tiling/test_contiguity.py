"""What an access moves along in memory: axes that are one run are one position."""

from __future__ import annotations

import pytest

from mirage_py.codegen.tiling.contiguity import merged_step, run_length, strided
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import BF16
from mirage_py.ugraph.ir.node import Access
from mirage_py.ugraph.ir.program import Tensor

_P, _C = ix.dim("p"), ix.dim("c")


def _rows(shape, index, strides=None, apart=()):
    tensor = Tensor("x", shape, BF16, strides)
    return [(str(expr), stride) for _, expr, stride in strided(index, tensor, apart)]


@pytest.mark.parametrize(
    ("shape", "index", "strides", "want"),
    [
        ((8, 56, 56), (_C, _P // 56, _P % 56), None, [("c", 3136), ("p", 1)]),
        ((4, 6, 5), (_P // 30, _P // 5 % 6, _P % 5), None, [("p", 1)]),
        ((6, 5), ((_P + 3) // 5, (_P + 3) % 5), None, [("p + 3", 1)]),
        # A split of so many rows.
        ((8, 6, 5), (_C * 4 + _P // 30, _P // 5 % 6, _P % 5), None, [("c * 120 + p", 1)]),
        # Another row begins elsewhere, or what is divided is not what is left.
        ((6, 5), (_P // 5, _P % 5), (8, 1), [("p // 5", 8), ("p % 5", 1)]),
        ((6, 5), (_P // 5, _C % 5), None, [("p // 5", 5), ("c % 5", 1)]),
        ((6, 5), (_P // 4, _P % 5), None, [("p // 4", 5), ("p % 5", 1)]),
        ((6, 8), (_P // 5, _P % 5), None, [("p // 5", 8), ("p % 5", 1)]),
        # Places where some columns of each row are read, one row behind the other.
        ((6, 8), (_P // 5, _P % 5), (5, 1), [("p", 1)]),
        ((6, 1, 5), (_P // 5, ix.const(0), _P % 5), None, [("p", 1)]),
    ],
)
def test_a_quotient_and_its_remainder_are_one_position(shape, index, strides, want):
    assert _rows(shape, index, strides) == want


def test_axes_whose_strides_are_arguments_stay_apart():
    index = (_P // 56, _P % 56)
    assert _rows((56, 56), index, apart=(0,)) == [("p // 56", 56), ("p % 56", 1)]


def test_vectors_go_across_the_ends_of_rows():
    tensor = Tensor("x", (28, 28), BF16)
    assert run_length(Access("x", (_P // 28, _P % 28)), tensor, "p", 8) == 8
    padded = Tensor("x", (28, 28), BF16, (32, 1))
    assert run_length(Access("x", (_P // 28, _P % 28)), padded, "p", 8) == 4


def test_dimensions_behind_one_another_are_one_run():
    groups = ix.dim("g") * 32 + _C
    assert merged_step(groups, [("c", 32), ("g", 4)]) == 1
    assert merged_step(groups * 3, [("c", 32), ("g", 4)]) == 3
    # The faster one first; all of it; and no places that overlap, as windows do.
    assert merged_step(groups, [("g", 4), ("c", 32)]) is None
    assert merged_step(groups, [("c", 16), ("g", 4)]) is None
    assert merged_step(_P + _C, [("p", 8), ("c", 3)]) is None
    assert merged_step(_P % 5, [("p", 8)]) is None
