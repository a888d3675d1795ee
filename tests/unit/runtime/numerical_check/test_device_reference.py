"""References that are computed on the device, where the host cannot evaluate a program."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
import torch

from mirage_py.frontend.spec import parse
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.runtime.numerical_check import check_service, device_reference, judge
from mirage_py.runtime.numerical_check.device_reference import needs_device
from mirage_py.runtime.numerical_check.input_store import InputStore
from mirage_py.ugraph.ir.dtypes import BF16, F32
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.text.json_form import dump_text
from mirage_py.verify.numerical_check.float_case import SPREAD, FloatEvidence, OutputCase
from mirage_py.verify.numerical_check.input_sets import set_names
from mirage_py.verify.numerical_check.numerical_check import MAX_REFERENCE_WORK

NORM = """B = 64, D = 512
X[B, D] : bf16
W[D, D] : bf16
let H[b, e] = sum[d](X[b, d] * W[d, e])
let M = sum[b, e](H[b, e] * H[b, e])
Y[b, e] = H[b, e] / sqrt(M + 1e-5)"""


def test_what_needs_gigabytes_for_one_element_is_left_to_the_device():
    large = parse(NORM.replace("B = 64, D = 512", "B = 8192, D = 8192"))
    assert needs_device(large, MAX_REFERENCE_WORK)
    assert not needs_device(parse(NORM), MAX_REFERENCE_WORK)
    # Of a loss of all rows no part can be left out.
    loss = "N = {}, V = 32000\nX[N, V] : bf16\nL[0] = sum[n](log(sum[v](exp(X[n, v]))))"
    assert needs_device(parse(loss.format(4096)), MAX_REFERENCE_WORK)
    assert not needs_device(parse(loss.format(64)), MAX_REFERENCE_WORK)
    # Statistics over a batch take little of the random set's work, and more than all of any other.
    batch = "N = {}, C = 64\nX[N, C] : bf16\nlet M[c] = sum[n](X[n, c])\nY[n, c] = X[n, c] - M[c]"
    assert needs_device(parse(batch.format(1 << 24)), MAX_REFERENCE_WORK)
    assert not needs_device(parse(batch.format(1 << 20)), MAX_REFERENCE_WORK)
    # However large, an elementwise function is evaluated where it is compared.
    sized = parse("B = 65536, D = 65536\nX[B, D] : bf16\nY[b, d] = exp(X[b, d])")
    assert not needs_device(sized, MAX_REFERENCE_WORK)


@pytest.mark.parametrize("kept", [1 << 22, 1 << 12])
def test_a_right_result_passes_and_a_wrong_one_does_not(tmp_path, monkeypatch, kept):
    monkeypatch.setattr(device_reference, "_MOST_KEPT", kept)
    monkeypatch.setattr(device_reference, "_MOST_OF_OTHERS", kept // 2)
    monkeypatch.setattr(device_reference, "_ENDS", 256)
    monkeypatch.setattr(check_service, "needs_device", lambda *_: True)
    program = parse(NORM)
    names = set_names(program)
    task = {"folder": str(tmp_path), "program": dump_text(program), "seed": 0, "sets": names}
    shares = check_service.prepare({**task, "max_work": 1e9, "threads": 1, "deadline": None})
    assert shares["random"][0] == min(1.0, kept / (64 * 512))
    assert shares["tiny"][0] == min(1.0, kept / 2 / (64 * 512))
    store, eager = InputStore(tmp_path, program), torch_function(program)
    for name in names:
        inputs = store.inputs(name, torch.device("cpu"))
        right = eager(*inputs)
        judge.add_eager(store, name, (right,))
        assert judge.judge_there(store, name, (right,)).passed
        wrong = right.clone()
        wrong[0, 3] = 2 * wrong[0, 3] + 1
        assert not judge.judge_there(store, name, (wrong,)).passed
        assert judge.judge_there(store, name, (right * 1.05,)).passed == (not right.any())
    known = store.read_reference("random")
    flat = known.places["Y"].flat if "Y" in known.places else np.arange(64 * 512)
    assert {0, 64 * 512 - 1} <= set(flat.tolist())
    exact = torch_function(device_reference.in_float64(program))
    wide = [x.double() for x in store.inputs("random", torch.device("cpu"))]
    found = exact(*wide).reshape(-1)[torch.from_numpy(flat)]
    np.testing.assert_allclose(known.outputs["Y"].reshape(-1), found, rtol=1e-12)
    judge.forget()


def test_places_of_a_large_output_are_groups_of_neighbours_with_both_ends():
    tensors = [Tensor("Y", shape, BF16) for shape in ((3, 5_000_011), (1 << 15, 129))]
    for tensor in tensors:
        for most in (1 << 22, 1 << 20):
            first, second = (device_reference._places(tensor, n, most).flat for n in (0, 1))
            _check_groups(tensor, first, most)
            _check_groups(tensor, second, most)
            assert (first != second).any()


def _check_groups(tensor, flat, most):
    assert (np.diff(flat) > 0).all()
    assert (flat[0], flat[-1]) == (0, tensor.elements - 1)
    assert flat.size > 0.99 * most
    counts = np.bincount(flat // 128)
    assert set(counts[:-1]) <= {0, 128}


def test_the_spread_is_that_of_the_neighbours():
    errors = np.repeat([1.0, np.nan, 3.0, 2.0], [128, 128, 128, 5])
    errors[5], errors[7:100] = np.nan, 0.0
    found = device_reference._spread(errors)
    # Few are as all around them: 34 of 1, 128 of 3 and 5 of 2.
    around = 2.0 * sqrt((34 + 128 * 9 + 5 * 4) / (34 + 128 + 5))
    few = [2.0, around, 6.0, around]
    np.testing.assert_allclose(found, np.repeat(few, [128, 128, 128, 5]))


def test_of_millions_of_right_elements_none_is_beyond_what_eager_has_shown():
    """Errors of the same spread as eager's, and independent of them: with four times the measured
    spread allowed some hundreds of four million were refused, of torch.compile and of kernels.
    """
    draw = np.random.default_rng(0)
    size = 1 << 22
    scale = np.repeat(draw.lognormal(0.0, 2.0, size // 128), 128)
    eager, ours = (scale * draw.normal(size=size) for _ in range(2))
    allowed = SPREAD * device_reference._spread(eager)
    assert (np.abs(ours) <= allowed).all()
    assert (np.abs(ours) > allowed / 2).sum() > 100
    # A kernel that is much coarser is refused element by element, too.
    assert (np.abs(12 * ours) > allowed).mean() > 0.3


def test_errors_behind_a_relu_are_those_of_what_is_not_zero():
    """Of a channel that is almost always 0 single elements are not: by the mean of all errors they
    would be held to a hundredth of what rounding does.
    """
    draw = np.random.default_rng(0)
    size = 1 << 20
    right = draw.normal(np.repeat(draw.uniform(-3.0, 1.0, size // 128), 128), 1.0)
    eager, ours = (np.maximum(right + 0.01 * draw.normal(size=size), 0.0) for _ in range(2))
    right = np.maximum(right, 0.0)
    allowed = SPREAD * device_reference._spread(eager - right)
    assert (np.abs(ours - right) <= allowed).mean() == 1.0
    assert np.quantile(allowed, 0.99) < 0.15


def test_of_estimates_a_few_elements_may_be_somewhat_beyond():
    tensor, size = Tensor("Y", (1 << 14,), F32), 1 << 14
    right, errors = np.ones(size), np.full(size, 1e-3)

    def passes(wrong, *, is_measured=True):
        case = OutputCase(tensor, right, errors, 1e-5, is_measured=is_measured)
        found = case.judge(wrong)
        return found.passed

    def off(count, by):
        wrong = right.copy()
        wrong[:count] += by * SPREAD * 1e-3
        return wrong

    assert passes(off(10, 1.5))
    assert not passes(off(10, 1.5), is_measured=False)
    assert not passes(off(1, 2.5))
    assert not passes(off(100, 1.5))
    # Where eager is farther off than the numbers are, it says nothing; a number it has to be.
    errors = np.where(np.arange(size) < 5000, 10.0, 1e-3)
    assert passes(off(5000, 1.5e4))
    assert not passes(off(5000, 1e5))  # farther than eager is anywhere
    assert not passes(off(5000, 1.5e4), is_measured=False)
    assert not passes(off(1, np.inf))


def row_errors(draw, rows: int, columns: int, size: float):
    """Errors that each row has in common: of one number by which all of it is multiplied."""
    along = np.random.default_rng(1).normal(size=columns)
    return size * draw.normal(size=(rows, 1)) * along


def judged(right, eager, ours, dtype=BF16):
    errors = device_reference._spread((eager - right).reshape(-1)).reshape(right.shape)
    case = OutputCase(Tensor("Y", right.shape, dtype), right, errors, 2**-7, is_measured=True)
    return case.judge(ours, eager)


def test_errors_that_rows_have_in_common_are_compared_over_many_rows():
    """Eager's error in a row is one number there, by chance a small one in some: right results
    were beyond eight times it there.
    """
    draw = np.random.default_rng(0)
    right = draw.normal(10.0, 1.0, (2048, 128))
    eager, ours = (right + row_errors(draw, 2048, 128, 0.2) for _ in range(2))
    errors = device_reference._spread((eager - right).reshape(-1)).reshape(right.shape)
    outside = np.abs(ours - right) > SPREAD * errors + 2**-7 * np.abs(right)
    assert 1e-3 < outside.mean()  # too many to be a few
    assert judged(right, eager, ours).passed
    closer = right + (ours - right) / 8
    assert judged(right, eager, closer).passed


def test_nowhere_may_an_output_be_much_farther_off_than_eager():
    draw = np.random.default_rng(0)
    right = draw.normal(10.0, 1.0, (2048, 128))
    right[1024:] *= 4.0
    eager, ours = (right + row_errors(draw, 2048, 128, 0.2) for _ in range(2))
    assert judged(right, eager, ours).passed
    # Rows of one stretch, an eighth of all; a tile of zeros; an element; too many of them.
    rows = ours.copy()
    rows[512:768] = right[512:768] + 4 * (ours - right)[512:768]
    tile = ours.copy()
    tile[640:656, 32:64] = 0.0
    single = ours.copy()
    single[77, 5] += 4.0
    many = right + 0.9 * np.abs(ours - right).mean() * np.ones_like(right)
    many += 0.02 * np.abs(right)
    for wrong in (rows, tile, single, many, np.where(ours == ours[9, 9], np.nan, ours)):
        assert not judged(right, eager, wrong).passed


def test_rows_that_rounding_decides_are_other_ones_in_another_order():
    """A softmax between two keys that are almost equal: eager takes the wrong one in a tenth of the
    rows, the kernel in a hundredth, hardly ever in the same.
    """
    draw = np.random.default_rng(0)
    right = draw.normal(size=(2048, 128))

    def off(share):
        flipped = draw.random((2048, 1)) < share
        return right + np.where(flipped, 0.3, 4e-3) * draw.normal(size=right.shape)

    eager = off(0.1)
    assert not judged(right, off(0.0), off(0.01)).passed
    assert judged(right, eager, off(0.01)).passed
    assert not judged(right, eager, off(0.5)).passed
    # What is off elsewhere is not hidden by rows that are far off.
    coarse = right + 4 * (off(0.0) - right)
    assert not judged(right, eager, coarse).passed


def test_the_order_of_a_long_sum_is_no_fault_though_eager_had_an_exact_one():
    """A channel that is constant, of numbers that eager rounds to 1/2: the mean of those is exact,
    and that of numbers in float32 is off by some units of the last place.
    """
    text = "N = {}, C = 2\nX[N, C], G[C], B[C] : bf16\nlet M[c] = mean[n](tanh(X[n, c]))\n"
    text += "let D[n, c] = tanh(X[n, c]) - M[c]\n"
    text += "Y[n, c] = D[n, c] / sqrt(mean[n](D[n, c]^2) + 1e-5) * G[c] + B[c]"
    count = 1 << 17
    program = parse(text.format(count))
    given = [torch.full((count, 2), 0.55), torch.tensor([2.0, -1.5]), torch.tensor([0.25, -0.5])]
    inputs = [x.bfloat16() for x in given]
    known = device_reference.device_reference(program, inputs, 0)
    x, gain, bias = (t.double() for t in inputs)

    def found(mean_error: float) -> FloatEvidence:
        values = torch.tanh(x)
        mean = values.mean(0) * (1.0 + mean_error * F32.unit_roundoff)
        right = (values - mean) / sqrt(1e-5) * gain + bias
        errors, outputs = known.errors["Y"], known.outputs["Y"]
        case = OutputCase(Tensor("Y", (count, 2), BF16), outputs, errors, 2**-7, is_measured=True)
        return case.judge(right.bfloat16().double().numpy())

    assert found(0.0).passed
    assert found(250.0).passed  # of 362 that are expected of so many roundings
    assert not found(1500.0).passed
    assert found(0.0).telling == 2 * count


def test_short_sums_are_held_to_what_eager_does():
    assert device_reference.with_inexact_sums(parse(NORM)) is None
