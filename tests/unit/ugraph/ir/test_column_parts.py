"""Products whose columns are read at two places, as one for each part of the columns."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mirage_py.ugraph.building import views
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.views import NamedArray
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import BF16
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.column_parts import with_column_parts
from mirage_py.verify.field_test.programs import compare_programs

HEADS, WIDTH, INNER = 3, 12, 20
Rotation = Callable[[ProgramBuilder, NamedArray], NamedArray]


def negative(builder: ProgramBuilder, x: NamedArray) -> NamedArray:
    return NamedArray(builder.apply("neg", x.node), x.axes)


def halves(builder: ProgramBuilder, x: NamedArray) -> NamedArray:
    first = views.slice_axis(builder, x, 1, 0, WIDTH // 2)
    second = views.slice_axis(builder, x, 1, WIDTH // 2)
    return views.concat(builder, [negative(builder, second), first], 1)


def pairs(builder: ProgramBuilder, x: NamedArray) -> NamedArray:
    even = views.slice_axis(builder, x, 1, 0, None, 2)
    odd = views.slice_axis(builder, x, 1, 1, None, 2)
    parts = [views.unsqueeze(builder, y, 2) for y in (negative(builder, odd), even)]
    return views.reshape(builder, views.concat(builder, parts, 2), (HEADS, WIDTH))


def some_columns(builder: ProgramBuilder, x: NamedArray) -> NamedArray:
    """Rotated on the first two thirds alone."""
    bounds = (0, 4), (4, 8), (8, 12)
    first, second, rest = (views.slice_axis(builder, x, 1, *bound) for bound in bounds)
    return views.concat(builder, [negative(builder, second), first, rest], 1)


def rotary(rotation: Rotation) -> Program:
    """Columns of a product times cosines, and the rotated ones times sines."""
    builder = ProgramBuilder("rotary")
    builder.dim("d", INNER)
    for name, shape in (("X", (INNER,)), ("W", (HEADS * WIDTH, INNER)), ("C", (WIDTH,))):
        builder.input(name, shape, BF16)
    builder.input("S", (WIDTH,), BF16)
    weights = views.from_input(builder, "W", ("m", "d"))
    (inner,) = weights.axes[1]
    row = builder.load("X", [inner])
    product = builder.sum(builder.apply("mul", row, weights.node), [inner])
    made = views.reshape(builder, NamedArray(product, weights.axes[:1]), (HEADS, WIDTH))
    terms = []
    for x, factor in ((made, "C"), (rotation(builder, made), "S")):
        both = views.broadcast(builder, [x, views.from_input(builder, factor)])
        terms.append(NamedArray(builder.apply("mul", *(y.node for y in both)), both[0].axes))
    one, other = views.broadcast(builder, terms)
    total = builder.apply("add", one.node, other.node)
    views.output(builder, "Y", NamedArray(total, one.axes), BF16)
    return builder.build()


@pytest.mark.parametrize(("rotation", "parts"), [(halves, 2), (pairs, 2), (some_columns, 3)])
def test_each_column_of_a_product_is_computed_once(rotation: Rotation, parts: int):
    program = rotary(rotation)
    found = with_column_parts(program)
    assert compare_programs(program, found).equal
    columns = [
        [d for d in n.dims if d not in n.access.index[1].dims()]
        for n in found.nodes
        if n.op == "load" and n.access.tensor == "W"
    ]
    points = [HEADS * WIDTH // parts] * parts
    sizes = found.sizes
    assert [sizes[a] * sizes[b] for a, b in columns] == points
    assert found.outputs[0].tensor == program.outputs[0].tensor
    assert found.inputs == program.inputs


def test_many_parts_are_left_as_they_are():
    def shifted(builder: ProgramBuilder, x: NamedArray) -> NamedArray:
        bounds = (1, WIDTH), (0, 1)
        pieces = [views.slice_axis(builder, x, 1, *bound) for bound in bounds]
        return views.concat(builder, pieces, 1)

    program = rotary(shifted)
    assert with_column_parts(program) is program


def test_what_is_no_product_is_left_as_it_is():
    builder = ProgramBuilder("rotated")
    builder.input("X", (HEADS, WIDTH), BF16)
    x = views.from_input(builder, "X")
    views.output(builder, "Y", halves(builder, x), BF16)
    program = builder.build()
    assert with_column_parts(program) is program


def test_indices_that_never_meet():
    sizes = {"h": 5, "i": 32}
    place = ix.dim("h") * 64 + ix.dim("i")
    assert ix.are_apart(place, place + 32, sizes)
    assert ix.are_apart(ix.dim("h") * 2, ix.dim("h") * 2 + 1, sizes)
    assert not ix.are_apart(place, place + 31, sizes)
    assert not ix.are_apart(place, place + 64, sizes)
    assert not ix.are_apart(ix.dim("i"), ix.dim("i") + 31, sizes)
    assert ix.are_apart(ix.dim("i"), ix.dim("i") + 32, sizes)
