"""Every family of every program, compared with the program in a field and in floats."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from unit.search import programs

from mirage_py.search.search import SearchLimits, search
from mirage_py.ugraph.field import FIELDS, FieldOps
from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.meaning import FieldMeaning, FloatMeaning
from mirage_py.ugraph.ugraph import BlockGraph
from mirage_py.ugraph.validate import validate_ugraph

ALL = {**programs.PROGRAMS, **programs.MORE}


@cache
def found(name):
    return search(ALL[name](*programs.SMALL_SIZES[name]))


def block_of(family):
    (block,) = family.ugraph.kernels
    assert isinstance(block, BlockGraph)
    return block


def with_tiles(ugraph, grid_tile, loop_tile):
    """Small tiles, none of which divides its dimension."""
    (block,) = ugraph.kernels
    grid = tuple(replace(axis, tile=grid_tile) for axis in block.grid)
    sections = tuple(replace(s, tile=loop_tile if s.loop else None) for s in block.sections)
    return replace(ugraph, kernels=(replace(block, grid=grid, sections=sections),))


def field_inputs(program, ops):
    return {t.name: ops.random(t.shape, t.name) for t in program.inputs}


def float_inputs(program):
    draw = np.random.default_rng(7)
    return {t.name: draw.uniform(0.5, 1.5, t.shape) for t in program.inputs}


@pytest.mark.parametrize("name", ALL)
def test_families_keep_the_rules(name):
    families = found(name).families
    assert families
    for family in families:
        validate_ugraph(family.ugraph)
        assert not block_of(family).is_instance or not block_of(family).grid


@pytest.mark.parametrize("name", ALL)
def test_families_equal_the_program_in_a_field(name):
    program = found(name).families[0].ugraph.program
    meaning = FieldMeaning(FieldOps(FIELDS[1], 5))
    inputs = field_inputs(program, meaning.ops)
    expected = evaluate_program(program, inputs, meaning)
    for family in found(name).families:
        result = evaluate_ugraph(with_tiles(family.ugraph, 2, 3), inputs, meaning)
        for tensor, value in expected.items():
            assert meaning.ops.equal(result[tensor], value), str(family.derivation)


@pytest.mark.parametrize("name", ALL)
def test_families_equal_the_program_in_floats(name):
    program = found(name).families[0].ugraph.program
    inputs = float_inputs(program)
    expected = evaluate_program(program, inputs, FloatMeaning())
    for family in found(name).families:
        result = evaluate_ugraph(with_tiles(family.ugraph, 3, 2), inputs, FloatMeaning())
        for tensor, value in expected.items():
            np.testing.assert_allclose(result[tensor], value, rtol=1e-9)


def test_expanded_families_equal_the_program():
    limits = SearchLimits(ring="expanded")
    program = programs.layernorm_linear(3, 7, 5)
    inputs = float_inputs(program)
    expected = evaluate_program(program, inputs, FloatMeaning())
    families = search(program, limits=limits).families
    assert min(len([s for s in block_of(f).sections if s.loop]) for f in families) <= 1
    for family in families:
        result = evaluate_ugraph(with_tiles(family.ugraph, 2, 3), inputs, FloatMeaning())
        np.testing.assert_allclose(result["Y"], expected["Y"], rtol=1e-7)
