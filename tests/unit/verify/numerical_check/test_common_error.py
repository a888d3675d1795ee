"""Errors that the elements of a row, of a head or of an output have in common are refused long
before a single element is too far off; independent ones of the same size are not.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mirage_py.frontend.spec import parse
from mirage_py.reasons import Code
from mirage_py.ugraph.ir.dtypes import BF16, F8E4M3, F32
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.verify.evaluate.element_types import round_to
from mirage_py.verify.numerical_check import common_error
from mirage_py.verify.numerical_check.float_case import OutputCase
from mirage_py.verify.numerical_check.input_sets import drawn_sets
from mirage_py.verify.numerical_check.numerical_check import cases, judge, reference
from mirage_py.verify.numerical_check.places import Places

SHAPE = (4, 32, 64)


def drawn(shape=SHAPE):
    return np.random.default_rng(0).normal(size=shape)


def case_of(expected, kind=BF16, places=None, **given):
    """Of results that are rounded once: four units are allowed."""
    tensor = Tensor("Y", expected.shape if places is None else places.shape, kind)
    return OutputCase(tensor, expected, None, 4 * kind.unit_roundoff, places, **given)


def fault(case, wrong, eager=None):
    found = case.judge(wrong, eager)
    return found.reason.code if found.reason else None


def scaled(part, by):
    factor = np.ones(SHAPE)
    factor[part] = by
    return factor


PARTS = {
    "all": ..., "a head": 2, "a row": (1, 3), "a column": (slice(None), slice(None), 5),
    "a place in each head": (slice(None), 7),
}  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_a_factor_that_a_part_has_in_common_is_refused(part: str):
    expected = drawn()
    case = case_of(expected)
    assert fault(case, round_to(expected, BF16)) is None
    # A hundredth is less than rounding may be of any one element, which is 1/64.
    wrong = expected * scaled(PARTS[part], 1.01)
    assert fault(case, wrong) is Code.OFF_TOGETHER
    assert fault(case, expected * (1 + 0.01 * np.sign(drawn()[::-1]))) is None
    # Nor where eager is off as much.
    assert fault(case, wrong, wrong) is None


def test_results_that_are_cut_off_and_not_rounded_are_refused():
    expected = drawn((64, 512))
    case = case_of(expected)
    nearest = round_to(expected, BF16)
    away = np.abs(nearest) > np.abs(expected)
    cut_off = np.where(away, round_to(nearest * (1 - 2.0**-8), BF16), nearest)
    assert (np.abs(cut_off) <= np.abs(expected)).all()
    assert fault(case, nearest) is None
    assert fault(case, cut_off) is Code.OFF_TOGETHER


def test_equal_rows_are_rounded_as_one():
    """All of 0.7 in bfloat16 is off by 0.2 %, in every row: that is what rounding does."""
    expected = np.full((64, 512), 0.7)
    assert fault(case_of(expected), round_to(expected, BF16)) is None
    doubled = expected * 2.0 ** (np.arange(64)[:, None] % 8)
    assert fault(case_of(doubled), round_to(doubled, BF16)) is None


def test_a_scale_that_is_off_is_seen_in_numbers_of_four_bits():
    expected = 100 * drawn((64, 512))
    case = case_of(expected, F8E4M3)
    assert fault(case, round_to(expected, F8E4M3)) is None
    assert fault(case, round_to(1.02 * expected, F8E4M3)) is Code.OFF_TOGETHER


def test_where_some_elements_are_known_and_on_another_library():
    expected = drawn((256, 128))
    flat = np.sort(np.random.default_rng(1).permutation(expected.size)[:8192])
    places = Places(expected.shape, flat)
    some = case_of(expected.reshape(-1)[flat], places=places)
    row = np.where(np.arange(256)[:, None] == flat[0] // 128, 1.012, 1.0)
    for wrong in (expected * 1.005, expected * row):
        assert fault(some, wrong) is Code.OFF_TOGETHER
    assert fault(some, round_to(expected, BF16)) is None
    on_torch = case_of(torch.from_numpy(expected), library=torch)
    for wrong in (expected * 1.005, expected * row):
        assert fault(on_torch, torch.from_numpy(wrong)) is Code.OFF_TOGETHER
    assert fault(on_torch, torch.from_numpy(round_to(expected, BF16))) is None


@pytest.mark.parametrize("library", [np, torch])
def test_a_single_number_has_no_error_in_common(library):
    for shape in ((), (1,), (3, 1), (0, 4)):
        expected = library.asarray(drawn(shape))
        case = case_of(expected, library=library)
        assert fault(case, expected * (1 + 2.0**-7)) is None
        # As far off as eager.
        assert fault(case, expected * (1 + 2.0**-5), expected * (1 + 2.0**-5)) is None


def test_what_operands_may_have_in_common_is_allowed_for():
    """Weights of a softmax are rounded before the product: a row of one key has one such error."""
    program = parse(
        "T = 32, S = 64, D = 64\nQ[T, D], K[S, D], V[S, D] : bf16\n"
        "O[t, e] = sum[s](softmax[s](sum[d](Q[t, d] * K[s, d])) * V[s, e])"
    )
    (inputs,) = drawn_sets(program, 0, ("random",))
    known = reference(program, inputs.arrays)
    for by, passes in ((2.0**-8, True), (0.04, False)):
        row = np.where(np.arange(32)[:, None] == 5, 1 + by, 1.0)
        found = judge(program, known, {"O": round_to(known["O"] * row, BF16)})
        assert (found.passed, found.excess < 1.0) == (passes, True)


def test_each_output_has_a_tolerance_of_its_own():
    """The scales of a quantised tensor are float32 numbers beside it, not held to four bits."""
    program = parse(
        "M = 64, D = 256\nX[M, D] : bf16\nY[M, D] : f8e4m3\nS[M] : f32\n"
        "let a[m] = max(max[d](abs(X[m, d])), 1e-6)\n"
        "Y[m, d] = clamp(X[m, d] * 448 / a[m], -448, 448)\nS[m] = a[m] / 448"
    )
    (inputs,) = drawn_sets(program, 0, ("random",))
    known = reference(program, inputs.arrays)
    right = {o.tensor.name: round_to(known[o.tensor.name], o.tensor.dtype) for o in program.outputs}
    assert judge(program, known, right).passed
    x = np.abs(inputs.arrays["X"])
    missed = {**right, "S": round_to(x[:, :-16].max(1) / 448, F32)}
    assert 0 < (missed["S"] != right["S"]).sum() < 16
    found = judge(program, known, missed)
    assert (found.passed, found.reason.code) == (False, Code.TOO_FAR)


@pytest.mark.parametrize("off", [2.0**-21, 2.0**-14])
def test_sums_that_all_elements_share_have_few_errors(off: float):
    """A batch norm of two channels: eager's sum of each may be exact, and another order is off by a
    few units, in all of the channel.
    """
    program = parse(
        "N = 4096, C = 2\nX[N, C] : f32\nlet m[c] = mean[n](X[n, c])\n"
        "let v[c] = mean[n]((X[n, c] - m[c])^2)\nY[n, c] = (X[n, c] - m[c]) / sqrt(v[c] + 1e-5)"
    )
    (inputs,) = drawn_sets(program, 0, ("random",))
    known = reference(program, inputs.arrays)
    (case,) = cases(program, known)
    exact = round_to(known["Y"], F32)
    other = round_to(known["Y"] * [1 + off, 1 - off], F32)
    assert case.judge(other, exact).passed == (off < 2.0**-20)


@pytest.mark.parametrize("library", [np, torch])
def test_of_large_outputs_some_places_of_the_longest_axis_are_looked_at(library, monkeypatch):
    monkeypatch.setattr(common_error, "_MOST", SHAPE[0] * SHAPE[2] * 8)
    axis, places = common_error.some_of(SHAPE)
    assert (axis, len({*places})) == (1, 8)
    assert common_error.some_of(SHAPE[:1]) is None
    expected = library.asarray(drawn())
    case = case_of(expected, library=library)
    assert fault(case, library.asarray(round_to(drawn(), BF16))) is None
    for part in ("all", "a head", "a column"):
        wrong = expected * library.asarray(scaled(PARTS[part], 1.01))
        assert fault(case, wrong) is Code.OFF_TOGETHER
    for place in range(SHAPE[1]):
        wrong = expected * library.asarray(scaled((slice(None), place), 1.01))
        assert (fault(case, wrong) is Code.OFF_TOGETHER) == (place in places)
