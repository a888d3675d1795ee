from __future__ import annotations

import numpy as np
import pytest
import samples

from mirage_py.ugraph.field import FIELDS, FieldOps
from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.meaning import FieldMeaning, FloatMeaning

NAMES = sorted(samples.TEXTS)


def outputs_in_field(graph, seed=1):
    meaning = FieldMeaning(FieldOps(FIELDS[0], seed))
    inputs = samples.field_inputs(graph.program, meaning.ops)
    expected = evaluate_program(graph.program, inputs, meaning)
    return meaning.ops, expected, evaluate_ugraph(graph, inputs, meaning)


def agrees_in_field(graph, seed=1):
    ops, expected, found = outputs_in_field(graph, seed)
    return all(ops.equal(expected[name], found[name]) for name in expected)


def agrees_in_floats(graph):
    inputs = samples.float_inputs(graph.program)
    expected = evaluate_program(graph.program, inputs, FloatMeaning())
    found = evaluate_ugraph(graph, inputs, FloatMeaning())
    return all(np.allclose(expected[name], found[name], rtol=1e-10) for name in expected)


@pytest.mark.parametrize("name", NAMES)
def test_samples_equal_their_programs_in_floats(name):
    assert agrees_in_floats(samples.ugraph(name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [1, 2])
def test_samples_equal_their_programs_in_the_field(name, seed):
    assert agrees_in_field(samples.ugraph(name), seed)
