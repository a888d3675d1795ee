"""Tile by tile or at once: the value is the same."""

from __future__ import annotations

import graph_strategies as graphs
import numpy as np
import samples
from hypothesis import assume, given
from hypothesis import strategies as st

from mirage_py.ugraph.field import FIELDS, DivisionByZero, FieldOps
from mirage_py.ugraph.interpret import evaluate_at, evaluate_program, evaluate_ugraph
from mirage_py.ugraph.interpret.meaning import FieldMeaning, FloatMeaning


@given(graphs.one_kernel_graphs())
def test_grids_do_not_matter_in_floats(ugraph):
    inputs = samples.float_inputs(ugraph.program)
    expected = evaluate_program(ugraph.program, inputs, FloatMeaning())
    found = evaluate_ugraph(ugraph, inputs, FloatMeaning())
    for name, value in expected.items():
        assert np.allclose(found[name], value, rtol=1e-9, atol=1e-9, equal_nan=True)


@given(graphs.one_kernel_graphs(), st.integers(0, 9))
def test_grids_do_not_matter_in_the_field(ugraph, seed):
    ops = FieldOps(FIELDS[seed % 2], seed)
    inputs = samples.field_inputs(ugraph.program, ops)
    try:
        expected = evaluate_program(ugraph.program, inputs, FieldMeaning(ops))
        found = evaluate_ugraph(ugraph, inputs, FieldMeaning(ops))
    except DivisionByZero:
        assume(False)
    for name, value in expected.items():
        assert ops.equal(found[name], value)


def some_points(size):
    """An interval of positions, or a list of them."""
    positions = st.integers(0, size - 1)
    intervals = st.tuples(positions, positions).map(lambda t: (min(t), max(t) + 1))
    return st.one_of(intervals, st.lists(positions, min_size=1, max_size=4).map(np.array))


@given(graphs.programs(), st.data())
def test_points_are_those_of_the_whole(program, data):
    inputs = samples.float_inputs(program)
    whole = evaluate_program(program, inputs, FloatMeaning())
    points = {
        d.name: data.draw(some_points(d.size)) for d in program.dims if data.draw(st.booleans())
    }
    for name, sample in evaluate_at(program, inputs, FloatMeaning(), points).items():
        found = whole[name][sample.elements]
        assert found.shape == sample.values.shape
        assert np.allclose(found, sample.values, rtol=1e-9, atol=1e-9, equal_nan=True)
