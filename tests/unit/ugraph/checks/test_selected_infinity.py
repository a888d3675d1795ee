"""Minus infinity in kernels is selected and nothing else."""

from __future__ import annotations

import math

import pytest

from mirage_py.frontend.spec import parse
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.checks.selected_infinity import infinity_fault
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.verify.field_test.field_test import field_test


def masked(form) -> Program:
    """An output made of x, of what is masked, and of the mask x > 0.5."""
    b = ProgramBuilder("masked")
    b.dim("q", 4)
    b.dim("s", 8)
    b.input("X", (4, 8), F32)
    x = b.load("X", ("q", "s"))
    mask, low = b.apply("gt", x, b.const(0.5)), b.const(-math.inf)
    b.output("Y", form(b, x, mask, low), ("q", "s"), F32)
    return b.build()


def selected(b, x, mask, low):
    return b.apply("where", mask, x, low)


def twice_selected(b, x, mask, low):
    return b.apply("where", mask, b.apply("where", mask, x, low), low)


def by_factors(b, x, mask, low):
    """Over a field the same: mask * x + (1 - mask) * low; in floats 0 * -inf is NaN."""
    other = b.apply("mul", b.apply("sub", b.const(1.0), mask), low)
    return b.apply("add", b.apply("mul", mask, x), other)


def one_kernel(program: Program, of: Program) -> UGraph:
    dims = [d.name for d in program.dims]
    return UGraph(of, (BlockGraph.whole("k", program.nodes, program.outputs, dims),))


@pytest.mark.parametrize(
    ("form", "is_equal"), [(selected, True), (twice_selected, True), (by_factors, False)]
)
def test_only_what_selects_it_is_equal(form, is_equal: bool):
    program = masked(selected)
    ugraph = one_kernel(masked(form), program)
    assert bool(infinity_fault(ugraph)) != is_equal
    found = field_test(program, ugraph, seed=0)
    assert found.equal == is_equal


def test_a_kernel_without_it_has_no_fault():
    program = parse("B = 4\nX[B] : f32\nY[b] = exp(X[b]) * 2")
    assert infinity_fault(one_kernel(program, program)) == ""
