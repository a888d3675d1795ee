"""Chains of views against NumPy."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mirage_py.ugraph.building import views
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.views import NamedArray
from mirage_py.ugraph.checks.validate import validate_program
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.dtypes import F32

SHAPES = [(2, 3, 4), (12,), (6, 4), (1, 8, 3), (2, 2, 2, 3), (4, 1)]


def factorings(total):
    """Shapes of that many elements."""
    rows = [(total,), (1, total), (total, 1)]
    for k in range(2, total):
        if total % k == 0:
            rows += [(k, -1), *((k, *rest) for rest in factorings(total // k))]
    return rows


def moved(draw, b, x, value):
    """One view, by us and by NumPy."""
    rank = value.ndim
    kind = draw(st.sampled_from(["reshape", "transpose", "slice", "repeat", "interleave", "self"]))
    if kind == "reshape":
        shape = draw(st.sampled_from(factorings(value.size)))
        return views.reshape(b, x, shape), value.reshape(shape)
    if kind == "transpose":
        perm = draw(st.permutations(range(rank)))
        return views.transpose(b, x, perm), value.transpose(perm)
    axis = draw(st.integers(0, rank - 1))
    if kind == "slice":
        start = draw(st.integers(0, value.shape[axis] - 1))
        stop, step = draw(st.integers(start + 1, value.shape[axis])), draw(st.integers(1, 3))
        index = (slice(None),) * axis + (slice(start, stop, step),)
        return views.slice_axis(b, x, axis, start, stop, step), value[index]
    if kind == "interleave":
        return views.repeat_interleave(b, x, 2, axis), np.repeat(value, 2, axis)
    if kind == "repeat":
        counts = [1] * rank
        counts[axis] = 2
        return views.repeat(b, x, counts), np.tile(value, counts)
    other = views.concat(b, [x, x], axis)
    return other, np.concatenate([value, value], axis)


@given(st.data())
def test_chains(data):
    b = ProgramBuilder("p")
    shape = data.draw(st.sampled_from(SHAPES))
    b.input("X", shape, F32)
    x = views.from_input(b, "X")
    inputs = {"X": np.random.default_rng(0).normal(size=shape)}
    value = inputs["X"]
    for _ in range(data.draw(st.integers(1, 5))):
        if value.size > 100:
            break
        x, value = moved(data.draw, b, x, value)
        if data.draw(st.integers(0, 3)) == 0:
            x, value = NamedArray(b.apply("tanh", x.node), x.axes), np.tanh(value)
        if data.draw(st.integers(0, 5)) == 0 and value.ndim > 1:
            # A reduction binds its dimension; later views must not touch it.
            over = b.sum(b.apply("square", x.node), x.axes[-1])
            x, value = NamedArray(over, x.axes[:-1]), (value**2).sum(-1)
    assert views.shape_of(b, x) == value.shape
    views.output(b, "Y", x, F32)
    program = b.build()
    validate_program(program)
    found = evaluate_program(program, inputs, FloatMeaning())["Y"]
    assert np.allclose(found, value)
