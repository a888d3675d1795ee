"""Families of every kind, compared with the program in a field and in floats.

All programs are searched at small sizes, with tiles that divide no dimension. So that reductions
are split there too, a dimension of 9 is taken to be worth it.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from unit.search import programs
from unit.search.kernels import ALL, EXPANDED, FACTORED, block_of, loops_of, spread, with_tiles

from mirage_py.search.enumerate.search import search
from mirage_py.search.extract.family import ATOMIC, LIBRARY, ONE_KERNEL, SPLIT, TWO_KERNELS
from mirage_py.search.space import variants
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.field import FIELDS, FieldOps
from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.interpret.meaning import FieldMeaning, FloatMeaning
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.verify.field_test.families import FamilyTests

_OF_EACH_KIND = 6


@cache
def found(name):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(variants, "MIN_SPLIT_EXTENT", 9)
        return search(ALL[name](*programs.SMALL_SIZES[name]), limits=FACTORED)


def field_inputs(program, ops):
    return {t.name: ops.random(t.shape, t.name) for t in program.inputs}


def float_inputs(program):
    draw = np.random.default_rng(7)
    return {t.name: draw.uniform(0.5, 1.5, t.shape) for t in program.inputs}


def test_there_are_families_of_every_kind():
    kinds = {f.kind for name in ALL for f in found(name).families}
    assert kinds == {ONE_KERNEL, TWO_KERNELS, SPLIT, ATOMIC, LIBRARY}


@pytest.mark.parametrize("name", ALL)
def test_families_keep_the_rules(name):
    families = found(name).families
    assert families
    for family in families:
        validate_ugraph(family.ugraph)
        for kernel in family.ugraph.kernels:
            assert not isinstance(kernel, BlockGraph) or not kernel.is_instance or not kernel.grid


@pytest.mark.parametrize("name", ALL)
def test_an_origin_for_every_block_graph(name):
    for family in found(name).families:
        blocks = [k for k in family.ugraph.kernels if isinstance(k, BlockGraph)]
        assert len(family.origins) == len(blocks)
        assert (family.kind == LIBRARY) == (len(blocks) < len(family.ugraph.kernels))
        assert (family.kind in (SPLIT, ATOMIC)) == ("_part" in str(family.ugraph.program.dims))


@pytest.mark.parametrize("name", ALL)
def test_families_equal_the_program_in_a_field(name):
    program = ALL[name](*programs.SMALL_SIZES[name])
    meaning = FieldMeaning(FieldOps(FIELDS[1], 5))
    inputs = field_inputs(program, meaning.ops)
    expected = evaluate_program(program, inputs, meaning)
    for family in spread(found(name).families, _OF_EACH_KIND):
        result = evaluate_ugraph(with_tiles(family.ugraph, 2, 2), inputs, meaning)
        for tensor, value in expected.items():
            assert meaning.ops.equal(result[tensor], value), str(family.origins)


@pytest.mark.parametrize("name", ALL)
def test_families_equal_the_program_in_floats(name):
    program = ALL[name](*programs.SMALL_SIZES[name])
    inputs = float_inputs(program)
    expected = evaluate_program(program, inputs, FloatMeaning())
    for family in spread(found(name).families, _OF_EACH_KIND // 2):
        result = evaluate_ugraph(with_tiles(family.ugraph, 3, 4), inputs, FloatMeaning())
        for tensor, value in expected.items():
            np.testing.assert_allclose(result[tensor], value, rtol=1e-9)


@pytest.mark.parametrize("name", ["attention", "lora"])
def test_families_pass_the_field_test_at_real_sizes(name):
    program = ALL[name]()
    tests = FamilyTests(program, trials=1, seed=0)
    for family in spread(search(program, limits=FACTORED).families, 1):
        assert tests.run(family.ugraph).equal, str(family.origins)


def test_expanded_families_equal_the_program():
    program = programs.layernorm_linear(3, 7, 5)
    inputs = float_inputs(program)
    expected = evaluate_program(program, inputs, FloatMeaning())
    families = search(program, limits=EXPANDED).families
    assert min(len(loops_of(block_of(f))) for f in families) <= 1
    for family in families:
        result = evaluate_ugraph(with_tiles(family.ugraph, 2, 3), inputs, FloatMeaning())
        np.testing.assert_allclose(result["Y"], expected["Y"], rtol=1e-7)
