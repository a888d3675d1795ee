"""Reports of a search, searches that find nothing, and reproducibility."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.search import programs
from unit.search.kernels import FACTORED, ONE_KERNEL, block_of

from mirage_py.reasons import Code, reason
from mirage_py.search.enumerate.search import search
from mirage_py.search.extract.extract import ExtractionLimits
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.ir.dtypes import F16
from mirage_py.ugraph.ir.node import Node


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_other_seeds_find_the_same_families(seed):
    program = programs.attention()
    expected = [f.ugraph.digest for f in search(program, limits=FACTORED).families]
    found = search(program, seed=seed, limits=FACTORED)
    assert [f.ugraph.digest for f in found.families] == expected


def test_counters_say_what_was_pruned_with_an_example():
    counters = search(programs.rmsnorm_matmul(), limits=ONE_KERNEL).counters
    assert counters.candidates > counters.tensors > 0
    assert counters.evaluations > 0
    assert counters.configurations == counters.hits == 2
    rules = [rule.code for rule in counters.pruned]
    assert rules == [Code.MATERIALISATION, Code.REDUCED_TILE]
    assert "mul(X[b, d], W[d, n]) (no loop)" in str(counters)


def test_a_bound_on_the_pool_is_reported():
    result = search(programs.rmsnorm_matmul(), limits=replace(FACTORED, max_tensors=10))
    assert not result.exhausted
    assert result.reasons[0].code is Code.POOL_OUTGREW
    assert result.reasons[0].data[0] == "10"


def test_a_bound_on_saturation_is_reported():
    result = search(programs.rmsnorm_matmul(), limits=replace(FACTORED, rounds=1))
    assert not result.saturated
    assert not result.exhausted
    assert result.families  # the program's own order of operations is always there


def test_a_bound_on_extraction_is_reported():
    limits = replace(FACTORED, extraction=ExtractionLimits(expansions=3))
    result = search(programs.rmsnorm_matmul(), limits=limits)
    assert any(reason.code is Code.EXTRACTION_CUT for reason in result.reasons)


def test_loops_that_need_one_another_are_bounded():
    program = programs.layernorm_linear()
    assert max(max(f.derivation.stages) for f in search(program, limits=ONE_KERNEL).families) == 3
    result = search(program, limits=replace(ONE_KERNEL, max_loops=2))
    assert all(max(f.derivation.stages) <= 2 for f in result.families)
    assert any(rule.code is Code.MAX_LOOPS for rule in result.counters.pruned)


def test_no_common_loop_means_no_family_but_no_error():
    limits = replace(FACTORED, max_loop_dims=0, max_tensors=5)
    result = search(programs.attention(), limits=limits)
    assert result.families == ()
    assert reason(Code.NO_CONFIGURATION) in result.reasons


def test_a_program_without_a_value_gives_a_reason():
    s = programs.Spec("undefined", b=4)
    x = s.load("X", "b")
    s.output("Y", s.b.apply("div", x, s.b.apply("sub", x, x)), "b")
    result = search(s.b.build())
    assert result.families == ()
    assert not result.exhausted
    assert result.reasons[0].code is Code.DIVIDES_BY_ZERO


def test_an_infinite_constant_gives_a_reason():
    s = programs.Spec("infinite", b=4)
    s.output("Y", s.b.apply("minimum", s.load("X", "b"), s.b.const(float("inf"))), "b")
    result = search(s.b.build())
    assert result.families == ()
    assert result.reasons[0].code is Code.NO_FIELD_VALUE
    assert "inf" in str(result.reasons[0])


def test_an_operator_of_block_graphs_gives_a_reason():
    program = programs.row_softmax()
    nodes = (*program.nodes[:-1], Node("accum_sum", (1,), None, ("b", "n")))
    result = search(replace(program, nodes=nodes))
    assert result.families == ()
    assert result.reasons[0].code is Code.BLOCK_OPERATOR
    assert "accum_sum" in str(result.reasons[0])


def test_a_copy_is_a_kernel():
    s = programs.Spec("copy", b=4)
    s.output("Y", s.load("X", "b"), "b")
    (family,) = search(s.b.build()).families
    assert [n.op for n in family.ugraph.kernels[0].nodes] == ["load", "store"]


def test_casts_are_transparent():
    s = programs.Spec("rounded", b=4, d=64, n=8)
    x = s.b.cast(s.load("X", "bd"), F16)
    s.output("Y", s.b.cast(s.contract(x, s.load("W", "dn"), "d"), F16), "bn")
    families = search(s.b.build(), limits=ONE_KERNEL).families
    assert len(families) == 2
    assert all(n.op != "cast" for f in families for n in block_of(f).nodes)


def test_a_mean_is_not_taken_for_a_division_by_a_constant():
    # 6 is what the size of the first reduced dimension would be in the search's small space.
    s = programs.Spec("mean_and_six", b=4, d=64)
    x = s.load("X", "bd")
    six = s.b.apply("div", s.b.sum(x, "d"), s.b.const(6.0))
    s.output("Y", s.b.apply("add", s.b.mean(x, "d"), s.b.apply("square", six)), "b")
    families = search(s.b.build(), limits=ONE_KERNEL).families
    assert families
    for family in families:
        leaves = [n.attr for n in block_of(family).nodes if n.op in ("size", "const")]
        assert sorted(leaves, key=str) == [6.0, "d"]


def test_a_relu_is_not_taken_for_its_argument():
    for seed in range(4):
        s = programs.Spec("relu", d=5)
        s.output("Y", s.b.apply("relu", s.load("X", "d")), "d")
        result = search(s.b.build(), seed=seed, limits=FACTORED)
        ops = [[n.op for n in f.ugraph.kernels[0].nodes] for f in result.families]
        assert ["load", "relu", "store"] in ops
        assert ["load", "store"] not in ops
        assert not result.reasons


def test_a_divisor_that_is_often_zero_is_drawn_again():
    s = programs.Spec("relu_below", d=5, n=3)
    total = s.b.sum(s.load("X", "d"), "d")
    s.output("Y", s.b.apply("div", s.load("Z", "n"), s.b.apply("relu", total)), "n")
    assert search(s.b.build()).families


def test_a_function_of_a_maximum_is_not_taken_for_the_maximum():
    # relu(max(x)) is max(x) unless all of x is negative: short rows show it, long ones do not.
    s = programs.Spec("relu_of_max", b=3, d=64)
    s.output("Y", s.b.apply("relu", s.b.max(s.load("X", "bd"), "d")), "b")
    for seed in range(4):
        families = search(s.b.build(), seed=seed, limits=FACTORED).families
        assert families
        for family in families:
            ops = [n.op for k in family.ugraph.kernels for n in k.nodes]
            assert "relu" in ops or "maximum" in ops


def test_two_outputs_of_one_value_are_both_stored():
    s = programs.Spec("twice", b=4)
    x = s.b.apply("exp", s.load("X", "b"))
    s.output("Y", x, "b")
    s.output("Z", x, "b")
    (family,) = search(s.b.build()).families
    assert [n.op for n in family.ugraph.kernels[0].nodes] == ["load", "exp", "store", "store"]


def test_an_output_may_repeat_its_value():
    s = programs.Spec("repeated", b=4, d=64, n=8)
    s.output("Y", s.b.sum(s.load("X", "bd"), "d"), "bn")
    families = search(s.b.build()).families
    assert families
    for family in families:
        validate_ugraph(family.ugraph)


def test_a_ring_names_what_cut_it():
    limits = replace(ONE_KERNEL, max_tensors=5, max_nodes=4)
    for report in search(programs.rmsnorm_matmul(), limits=limits).rings:
        assert report.cut_by == ("max_nodes", "max_tensors")
    stopped = search(programs.rmsnorm_matmul(), should_stop=lambda: True)
    assert stopped.rings == ()  # no job began
    assert stopped.reasons == (reason(Code.OUT_OF_TIME),)
    begun, *_ = search(
        programs.rmsnorm_matmul(), should_stop=iter([False, *[True] * 99]).__next__
    ).rings
    assert "time" in begun.cut_by
    (whole,) = search(programs.row_softmax(), limits=FACTORED).rings
    assert whole.exhausted
    assert whole.cut_by == ()
