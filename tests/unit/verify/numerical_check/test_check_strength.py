"""A check that compared nothing, or allows more than the values, is no check."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from mirage_py.frontend.spec import parse
from mirage_py.reasons import Code
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.dtypes import BF16, BOOL
from mirage_py.verify.numerical_check.check_strength import (
    evidence_of,
    is_strong,
    joined,
    of_set,
    plain_evidence,
    required,
    set_words,
    why_unchecked,
)
from mirage_py.verify.numerical_check.numerical_check import input_sets, judge, reference


def masked_softmax():
    """As torch's ``x.masked_fill(~m, finfo.min).softmax(-1)`` is imported."""
    b = ProgramBuilder("masked")
    b.dim("r", 8)
    b.dim("d", 32)
    b.input("x", (8, 32), BF16)
    b.input("m", (8, 32), BOOL)
    one = b.const(1.0)
    hidden = b.apply("sub", one, b.apply("sub", one, b.load("m", "rd")))
    logits = b.apply("where", hidden, b.load("x", "rd"), b.const(-BF16.max_finite))
    power = b.apply("exp", logits)
    b.output("Y", b.apply("div", power, b.sum(power, ["d"])), "rd", BF16)
    return b.build()


def checked(program, kernel=lambda name, y: y):
    """The evidence of a kernel that gives the reference, changed."""
    parts = []
    for inputs in input_sets(program, 0):
        expected = reference(program, inputs.arrays)
        got = {n: kernel(inputs.name, y) for n, y in expected.outputs.items()}
        parts.append(of_set(inputs.name, judge(program, expected, got)))
    return joined(parts)


def test_all_elements_are_compared_after_a_mask_of_the_lowest_number():
    found = checked(masked_softmax())
    assert found.passed
    for one in found.sets:
        assert one.telling == one.elements == 256, one
        assert is_strong(one) == (one.name != "zeros")


@pytest.mark.parametrize("name", ["random", "masked_rows", "left_padding", "outliers"])
def test_a_masked_softmax_that_is_wrong_is_refused(name):
    def kernel(one, y):
        return np.roll(y, 1, axis=1) * 1.1 if one == name else y

    found = checked(masked_softmax(), kernel)
    if name != "outliers":  # one of 32 has all the weight
        assert not found.passed
        assert str(found.reason).startswith(f"{name} inputs: Y")


# A sum of a thousand numbers of 1e6, less nearly the same: rounding may be more than it is.
VAGUE = """M = 8, N = 1000
X[M, N] : f32
Y[m] = sum[n](X[m, n] + 1e6) - sum[n](X[m, n] + 1000000.0625)"""


def test_a_plan_with_no_set_that_says_anything_has_not_passed():
    found = required(checked(parse(VAGUE)))
    assert all(not is_strong(s) for s in found.sets)
    assert not found.passed
    assert found.reason.code is Code.UNCHECKED
    assert "rounding may move by more" in str(found.reason)


def test_one_set_that_says_something_is_enough():
    found = required(checked(parse("N = 64\nX[N] : f32\nY[n] = X[n] * 2")))
    assert found.passed
    assert all(is_strong(s) for s in found.sets if s.name != "zeros")


def test_an_output_of_which_no_set_says_anything_is_not_checked_by_another_one():
    text = VAGUE.replace("M = 8, N = 1000", "M = 8, N = 1000, K = 512")
    program = parse(text + "\nA[M, K] : f32\nZ[m, k] = A[m, k] * 2")
    found = required(checked(program))
    assert all(is_strong(s) for s in found.sets if s.name != "zeros")
    assert not found.passed
    assert found.reason.code is Code.UNCHECKED
    assert "results in Y" in str(found.reason)
    assert evidence_of(json.loads(json.dumps(plain_evidence(found)))) == found


def test_zeros_alone_are_no_check():
    program = parse("N = 64\nX[N] : f32\nY[n] = X[n] * 2")
    parts = [of_set("zeros", judge(program, {"Y": np.zeros(64)}, {"Y": np.zeros(64)}))]
    assert not required(joined(parts)).passed


def test_the_error_that_is_reported_is_that_of_a_set_that_says_something():
    program = parse("N = 64\nX[N] : f32\nY[n] = X[n] * 2")
    weak = of_set("large", judge(program, {"Y": np.full(64, np.nan)}, {"Y": np.full(64, np.nan)}))
    values = np.arange(1.0, 65.0)
    strong = of_set("random", judge(program, {"Y": values}, {"Y": values * (1 + 1e-8)}))
    assert joined([weak, strong]).max_rel_error == pytest.approx(1e-8)


def test_words_say_what_was_not_compared_and_why():
    program = parse("N = 64\nX[N] : f16\nY[n] = X[n] * 2")
    expected = np.concatenate([np.full(16, 1e6), np.arange(48.0)])
    got = np.where(expected > 1e5, np.inf, expected)
    found = of_set("large", judge(program, {"Y": expected}, {"Y": got}))
    assert set_words(found.sets[0]) == (
        "large: 48 of 64 elements compared (16 without a finite value in their type)"
    )
    assert found.sets[0].excess == 0.0


def test_evidence_goes_through_plain_values():
    found = checked(masked_softmax())
    wrong = replace(found, passed=False, reason=why_unchecked(found.sets))
    for evidence in (found, wrong):
        assert evidence_of(json.loads(json.dumps(plain_evidence(evidence)))) == evidence
