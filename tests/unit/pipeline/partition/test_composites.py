"""Composites of parts: what lies between them in float32, and in the inputs' half type."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirage_py.frontend.spec import parse
from mirage_py.pipeline.partition.composites import Composite, composites_of, with_other_types
from mirage_py.pipeline.partition.limits import PartitionLimits
from mirage_py.pipeline.partition.part_choice import choose
from mirage_py.pipeline.partition.partition import partition
from mirage_py.pipeline.pipeline import normalise, rank_plans
from mirage_py.pipeline.selection.request import Request
from mirage_py.runtime.cpu.triton_interpreter import check_interpreted
from mirage_py.targets import H200
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.ir.dtypes import BF16, F16, F32

STEPS = """
B = 6, D = 80
X[B, D], G[D] : {x}
W[D] : {w}
Y[b, d] = tanh(X[b, d] * X[b, d] + G[d]) * W[d] * X[b, d] / sqrt(mean[d](X[b, d]^2) + 1)
"""
LIMITS = PartitionLimits(operators=4, reduced_dims=1)
ALONE = Request(backend="triton", effort="none")


def composites(x: str, w: str, *, in_halves: bool = False) -> list[Composite]:
    program = normalise(parse(STEPS.format(x=x, w=w), name="steps"))
    whole = partition(program, LIMITS, in_halves=in_halves)
    assert len(whole.parts) > 1
    parts = [choose(p, rank_plans, ALONE, H200, measure=False) for p in whole.parts]
    plans = composites_of(whole, parts, measure=False)
    return [Composite(plan, whole, parts, 1e-3) for plan in plans]


@pytest.mark.parametrize("half", [BF16, F16])
def test_cuts_are_tried_in_the_type_of_the_inputs(half):
    (plain,) = composites(half.name, half.name)
    rounded, last = with_other_types([plain], H200)
    assert last is plain
    assert rounded.time_us < plain.time_us
    ugraph = rounded.plan.ugraph
    validate_ugraph(ugraph)
    assert {t.dtype for t in plain.plan.ugraph.intermediates} == {F32}
    # The mean square of a row stays in float32.
    assert {t.shape: t.dtype for t in ugraph.intermediates} == {(6,): F32, (6, 80): half}
    assert check_interpreted(plain.whole.program, rounded.plan, seed=1).passed


@pytest.mark.parametrize("types", [("f32", "f32"), ("bf16", "f32"), ("bf16", "f16")])
def test_nothing_is_rounded_that_is_not_of_one_half_type(types):
    found = composites(*types)
    assert with_other_types(found, H200) == found


def test_what_saves_little_is_not_tried():
    (plain,) = composites("bf16", "bf16")
    slow = Composite(plain.plan, plain.whole, plain.chosen, 1e3)
    assert with_other_types([slow], H200) == [slow]


def test_cuts_in_halves_are_tried_in_float32():
    (halves,) = composites("bf16", "bf16", in_halves=True)
    first, wide = with_other_types([halves], H200)
    assert first is halves
    assert wide.time_us > halves.time_us
    assert {t.dtype for t in halves.plan.ugraph.intermediates} == {F32, BF16}
    assert {t.dtype for t in wide.plan.ugraph.intermediates} == {F32}
    validate_ugraph(wide.plan.ugraph)
    assert check_interpreted(halves.whole.program, wide.plan, seed=1).passed


def test_what_was_measured_part_by_part_stays_first():
    """Another composite that is predicted to be faster comes after it and its twin."""
    (measured,) = composites("bf16", "bf16")
    predicted = replace(measured, time_us=measured.time_us / 2)
    found = with_other_types([measured, predicted], H200)
    assert found[1] is measured
    assert found[3] is predicted
    assert len(found) == 4
