"""Programs with fewer dimensions, which compute the same."""

from __future__ import annotations

import pytest

from mirage_py.dynamo.regions.common_dims import common_columns, with_common_dims
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import BF16
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.field_test.programs import compare_programs


def normed_products(widths: tuple[int, ...], rows: int = 1, inner: int = 64) -> Program:
    """Rows over their norm, and their products with matrices of these widths."""
    builder = ProgramBuilder("normed")
    dims = [builder.dim("b", rows)] if rows > 1 else []
    d, e = builder.dim("d", inner), builder.dim("e", inner)
    builder.input("X", (rows, inner), BF16)
    row = "b" if dims else ix.const(0)
    squares = builder.apply("square", builder.load("X", [row, d]))
    scale = builder.apply("rsqrt", builder.mean(squares, [d]))
    normed = builder.apply("mul", builder.load("X", [row, e]), scale)
    for number, width in enumerate(widths):
        m = builder.dim(f"m{number}", width)
        builder.input(f"W{number}", (width, inner), BF16)
        product = builder.apply("mul", normed, builder.load(f"W{number}", [m, e]))
        builder.output(f"Y{number}", builder.sum(product, [e]), [row, m], BF16)
    return builder.build()


@pytest.mark.parametrize("widths", [(1024, 256, 256), (256, 512), (512, 512), (768, 512)])
def test_one_row_has_one_loop_and_one_grid(widths: tuple[int, ...]):
    program = normed_products(widths)
    found = with_common_dims(program)
    assert compare_programs(program, found).equal
    assert sum(size == 64 for size in found.sizes.values()) == 1
    assert sum(size >= 256 for size in found.sizes.values()) == 1
    assert [o.tensor for o in found.outputs] == [o.tensor for o in program.outputs]
    assert found.inputs == program.inputs


def test_several_rows_share_columns_of_equal_number_only():
    equal = with_common_dims(normed_products((512, 512), rows=4))
    assert sorted(equal.sizes.values()) == [4, 64, 512]
    other = with_common_dims(normed_products((512, 256), rows=4))
    assert sorted(other.sizes.values()) == [4, 64, 256, 512]


def test_dimensions_that_meet_in_a_value_stay_apart():
    builder = ProgramBuilder("outer")
    a, b = builder.dim("a", 32), builder.dim("b", 32)
    builder.input("X", (32,), BF16)
    outer = builder.apply(
        "exp", builder.apply("add", builder.load("X", [a]), builder.load("X", [b]))
    )
    builder.output("Y", builder.sum(outer, [a, b]), [ix.const(0)], BF16)
    program = builder.build()
    assert with_common_dims(program).sizes == program.sizes


@pytest.mark.parametrize(
    ("widths", "one_row", "columns"),
    [
        ((4096, 1024, 1024), True, 1024),
        ((4096, 1024), False, 0),
        ((14336, 14336), False, 14336),
        ((4096, 100), True, 0),
        ((32768, 256), True, 0),
        ((4096,), False, 4096),
    ],
)
def test_common_columns(widths: tuple[int, ...], one_row: bool, columns: int):
    assert common_columns(widths, one_row=one_row) == columns
