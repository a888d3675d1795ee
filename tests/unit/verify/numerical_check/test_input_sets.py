from __future__ import annotations

import numpy as np
import pytest
from plans import rms_plan

from mirage_py.frontend.spec import parse
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import BF16, F16, F32
from mirage_py.verify.evaluate.element_types import round_to
from mirage_py.verify.numerical_check.extreme_inputs import reduced_axes
from mirage_py.verify.numerical_check.input_sets import drawn_sets, input_sets, set_names
from mirage_py.verify.numerical_check.numerical_check import judge, reference

MLP = "B = 4, D = 64, N = 48\nX[B, D], U[D, N], W[D, N] : {}\nY[b, n] = {}"
PRODUCT = "silu(sum[d](X[b, d] * U[d, n])) * sum[d](X[b, d] * W[d, n])"


def sets(kind: str, body: str = PRODUCT):
    program = parse(MLP.format(kind, body))
    return program, {s.name: s.arrays for s in input_sets(program, seed=1)}


@pytest.mark.parametrize(("kind", "dtype"), [("f16", F16), ("bf16", BF16), ("f32", F32)])
def test_every_value_is_one_of_its_type(kind, dtype):
    program, found = sets(kind)
    assert tuple(found) == set_names(program)
    for arrays in found.values():
        for tensor in program.inputs:
            values = arrays[tensor.name]
            assert values.shape == tensor.shape
            assert values.dtype == np.float64
            assert np.isfinite(values).all()
            assert np.array_equal(round_to(values, dtype), values)


def test_the_same_seed_gives_the_same_sets():
    program, _ = sets("f16")
    for one, other in zip(input_sets(program, 5), input_sets(program, 5), strict=True):
        assert all(np.array_equal(one.arrays[n], other.arrays[n]) for n in one.arrays)
    other = input_sets(program, 6)[0].arrays
    assert not np.array_equal(other["X"], input_sets(program, 5)[0].arrays["X"])


def test_weights_keep_results_at_their_size():
    _, found = sets("f16")
    x, w = found["random"]["X"], found["random"]["W"]
    assert x.std() == pytest.approx(1, rel=0.2)
    assert (x @ w).std() == pytest.approx(1, rel=0.3)


def test_what_the_sets_look_like():
    _, found = sets("f16")
    assert not any(a.any() for a in found["zeros"].values())
    assert all(len(np.unique(a)) == 1 for a in found["constant"].values())
    assert (np.sign(found["alternating"]["X"]) == [1, -1] * 32).all()
    assert np.abs(found["tiny"]["X"]).mean() < 2 * 2.0**-14
    assert np.array_equal(found["tiny"]["W"], found["random"]["W"])
    assert np.array_equal(found["huge_row"]["X"][1:], found["random"]["X"][1:])
    assert np.abs(found["offset"]["X"] - 32 - found["random"]["X"]).max() < 0.02
    assert np.array_equal(found["offset"]["W"], found["random"]["W"])


def test_what_a_root_is_taken_of_is_not_negative():
    """Behind the squares of a norm, which are an input here."""
    text = "B = 3, D = 24\nS, X[B, D] : f32\nY[b, d] = X[b, d] / sqrt(sum[d](S[b, d]) / D + 1e-6)"
    program = parse(text.replace("S, X", "S[B, D], X"))
    for found in input_sets(program, seed=1):
        assert (found.arrays["S"] >= 0).all(), found.name
        assert np.isfinite(reference(program, found.arrays).outputs["Y"]).all(), found.name
    assert (input_sets(program, seed=1)[0].arrays["X"] < 0).any()


@pytest.mark.parametrize("square", ["X[b, d]^2", "X[b, d] * X[b, d]", "2 * X[b, d]^2"])
def test_what_the_program_squares_itself_has_both_signs(square):
    program = parse(f"B = 3, D = 24\nX[B, D] : f32\nY[b] = sqrt(sum[d]({square}))")
    assert (input_sets(program, seed=1)[0].arrays["X"] < 0).any()


def test_large_values_leave_the_results_finite():
    # The product grows with the third power of the scale, the normalised row not at all.
    _, product = sets("f16")
    x, u, w = (product["large"][n] for n in "XUW")
    gate = x @ u
    result = gate / (1 + np.exp(-np.clip(gate, -60, 60))) * (x @ w)
    assert 1000 < np.abs(result).max() <= F16.max_finite
    _, row = sets("f16", "sum[d](X[b, d] * U[d, n] * W[d, n]) / sqrt(mean[d](X[b, d]^2))")
    assert F16.max_finite / 16 < np.abs(row["huge_row"]["X"]).max() <= F16.max_finite / 4


def test_outliers_are_in_a_few_columns_with_large_gains():
    """So that a product in half precision, formed before a norm divides, overflows."""
    norm = "X[b, d] * G[d] / sqrt(mean[d](X[b, d]^2) + 1e-6)"
    program = parse(f"B = 4, D = 256\nX[B, D], G[D] : f16\nY[b, d] = {norm}")
    (found,) = drawn_sets(program, 0, ["outliers"])
    x, g = found.arrays["X"], found.arrays["G"]
    large = np.abs(x) > 100
    assert large.all(axis=0).sum() == large.any(axis=0).sum() == 4
    assert np.abs(x * g).max() > F16.max_finite
    assert np.isfinite(reference(program, found.arrays).outputs["Y"]).all()


@pytest.mark.parametrize(("kind", "spread"), [("f32", 1.0), ("f16", 39.0), ("bf16", 312.5)])
def test_far_data_has_a_mean_far_above_its_spread(kind, spread):
    program = parse(f"B = 8, D = 512\nX[B, D] : {kind}\nY[b] = mean[d](X[b, d])")
    far, rows, small = (s.arrays["X"] for s in drawn_sets(program, 0, ["far", "far_rows", "small"]))
    assert far.mean() == pytest.approx(1e4, rel=0.01)
    assert far.std() == pytest.approx(spread, rel=0.1)
    means = rows.mean(axis=1)
    assert len(np.unique(np.round(np.log2(np.abs(means))))) == 8
    assert (np.abs(means) > rows.std(axis=1)).sum() >= 5
    assert small.std() == pytest.approx(1e-3, rel=0.1)


def test_integers_tie_with_each_other_and_with_what_they_are_compared_with():
    program = parse(
        "N = 512\nX, W[N] : f32\nY[n] = where(X[n] > .37, W[n], 0)".replace("X, W", "X[N], W")
    )
    (found,) = drawn_sets(program, 0, ["integers"])
    x = found.arrays["X"]
    assert set(np.unique(x)) == {-2.0, -1.0, 0.0, float(np.float32(0.37)), 1.0, 2.0}
    assert (x == found.arrays["W"]).sum() > 50


def test_what_is_subtracted_is_far_from_zero_and_close_together():
    text = "B = 3, S = 40\nA[B, S], L[B] : f32\nY[b] = sum[s](exp(A[b, s] - L[b]))"
    (found,) = drawn_sets(parse(text), 0, ["close"])
    a, low = found.arrays["A"], found.arrays["L"]
    assert a.min() > 90
    assert low.min() > 90
    assert np.abs(a - low[:, None]).max() < 10


def test_what_is_subtracted_from_a_computed_number_is_close_to_it():
    text = """T = 24, S = 40, C = 8
    Q[T, C], K[S, C] : f32
    L[T] : f32
    P[t, s] = exp(sum[c](Q[t, c] * K[s, c]) - L[t])"""
    program = parse(text)
    (found,) = drawn_sets(program, 0, ["close"])
    logits = found.arrays["Q"] @ found.arrays["K"].T
    assert 80 < np.abs(logits).max() < 120
    assert np.abs(logits.max(axis=1) - found.arrays["L"]).max() < 4
    assert "close" in set_names(program)


def test_logits_reach_a_hundred():
    _, found = sets("f16", "sum[d](softmax[d](X[b, d] * 3) * U[d, n] * W[d, n])")
    assert np.abs(found["logits"]["X"] * 3).max() == pytest.approx(100, rel=0.2)


MASKED = """B = 6, S = 12
X[B, S] : f16
M[B, S] : bool
Y[b, s] = softmax[s](where(M[b, s], X[b, s], -1e4))"""
ADDED = """B = 6, S = 12
X[B, S], M[B, S] : f16
Y[b, s] = softmax[s](X[b, s] + M[b, s])"""


@pytest.mark.parametrize("text", [MASKED, ADDED], ids=["truth values", "added"])
def test_masks_hide_rows_and_their_ends(text):
    program = parse(text)
    kinds = ("masked_rows", "left_padding", "right_padding")
    whole, left, right = (s.arrays["M"] for s in drawn_sets(program, 0, kinds))
    shown = 0.0 if text == ADDED else 1.0
    hidden = -F16.max_finite if text == ADDED else 0.0
    assert (whole[0] == hidden).all()
    assert (whole[1] == shown).all()
    assert len(np.unique(whole[2])) == 2
    for row in range(6):
        assert np.array_equal(left[row] == shown, np.arange(12) >= 2 * row)
        assert np.array_equal(right[row] == shown, np.arange(12) < 12 - 2 * row)


def test_programs_have_the_sets_that_say_something_about_them():
    plain = parse("N = 8\nX[N] : f16\nY[n] = X[n] + X[n]^2")
    assert not {"close", "logits", "left_padding"} & set(set_names(plain))
    assert {"logits", "masked_rows", "left_padding"} <= set(set_names(parse(MASKED)))
    assert "close" not in set_names(parse("N = 8\nX[N] : f16\nY[n] = X[n] - mean[n](X[n])"))


def test_integers_and_truth_values():
    program = parse("N = 64\nX[N] : f16\nM[N] : bool\nI[N] : i32\nY[n] = X[n] * M[n] + I[n]")
    for inputs in input_sets(program, seed=1):
        hidden = inputs.name == "masked_rows"
        assert set(inputs.arrays["M"].tolist()) == ({0.0} if hidden else {0.0, 1.0})
        assert np.array_equal(inputs.arrays["I"], np.rint(inputs.arrays["I"]))


def test_labels_are_positions_of_what_they_are_compared_with():
    program = parse(
        "T = 200, V = 50\nX[T, V] : f32\nL[T], N[T] : i32, W[T] : i8\n"
        "Y[t] = sum[v](where((v + 3 == L[t]) & (v < N[t]), X[t, v], 0)) * W[t]"
    )
    drawn = next(iter(input_sets(program, seed=2))).arrays
    assert (drawn["L"].min(), drawn["L"].max()) == (3, 52)
    assert (drawn["N"].min(), drawn["N"].max()) == (0, 49)
    assert drawn["W"].min() < 0


@pytest.mark.parametrize(
    ("shape", "strides", "same"),
    [
        ((5, 8), (0, 1), lambda a: np.ptp(a, axis=0)),
        ((5, 8), (1, 0), lambda a: np.ptp(a, axis=1)),
        ((5, 8), (2, 1), lambda a: a[1:, :-2] - a[:-1, 2:]),
    ],
    ids=["rows expanded", "columns expanded", "windows overlap"],
)
def test_elements_that_share_memory_have_one_value(shape, strides, same):
    b = ProgramBuilder("shared")
    b.dim("m", shape[0])
    b.dim("n", shape[1])
    b.input("X", shape, F16, strides=strides)
    b.output("Y", b.load("X", "mn"), "mn", F16)
    for inputs in input_sets(b.build(), 3):
        x = inputs.arrays["X"]
        assert x.shape == shape
        assert not same(x).any(), inputs.name


@pytest.mark.parametrize("strides", [(8, 1), (1, 5), (20, 2), (1, 1)])
def test_a_layout_without_overlap_takes_any_values(strides):
    shape = (5, 8) if strides != (1, 1) else (1, 8)
    b = ProgramBuilder("apart")
    b.dim("m", shape[0])
    b.dim("n", shape[1])
    b.input("X", shape, F16, strides=strides)
    b.output("Y", b.load("X", "mn"), "mn", F16)
    (random, *_) = input_sets(b.build(), 3)
    assert len(np.unique(random.arrays["X"])) > 0.9 * shape[0] * shape[1]


def test_large_inputs_may_be_multiplied_before_they_are_divided():
    """A norm after the matmul instead of before it: bfloat16 itself reaches 1e38."""
    plan = rms_plan(dtype=BF16)
    program = plan.ugraph.program
    (inputs,) = drawn_sets(program, 0, ["large"])
    assert all(np.abs(x).max() > 1e6 for x in inputs.arrays.values())
    assert not inputs.is_mild
    # When it is late, as large as is known to fit.
    names = ("large", "far", "zeros")
    late, far, zeros = drawn_sets(program, 0, names, deadline=float("-inf"))
    assert (late.is_mild, far.is_mild) == (True, True)
    assert all(0 < np.abs(x).max() < 10 for x in late.arrays.values())
    assert not any(x.any() for x in zeros.arrays.values())
    found = judge(program, reference(program, inputs.arrays), run_interpreted(plan, inputs.arrays))
    assert found.passed, found.reason


def test_the_matrix_of_one_row_is_scaled_as_that_of_many():
    def program(rows):
        builder = ProgramBuilder("rows")
        dims = [builder.dim("b", rows)] if rows > 1 else []
        builder.dim("d", 256)
        builder.dim("m", 64)
        builder.input("X", (rows, 256), BF16)
        builder.input("W", (64, 256), BF16)
        row = "b" if dims else ix.const(0)
        product = builder.apply("mul", builder.load("X", [row, "d"]), builder.load("W", ["m", "d"]))
        builder.output("Y", builder.sum(product, ["d"]), [row, "m"], BF16)
        return builder.build()

    one, many = (next(iter(drawn_sets(program(n), 0, ["random"]))).arrays for n in (1, 4))
    np.testing.assert_array_equal(one["W"], many["W"])
    assert 0.9 < one["X"].std() < 1.1
    assert 0.9 < one["W"].std() * 16 < 1.1


def test_tensors_without_axes_have_values_in_every_set():
    b = ProgramBuilder("scaled")
    m, n = b.dim("m", 6), b.dim("n", 8)
    b.input("X", (6, 8), F16)
    b.input("S", (), F16)
    scaled = b.apply("mul", b.apply("exp", b.load("X", (m, n))), b.load("S", ()))
    b.output("Y", scaled, (m, n), F16)
    program = b.build()
    found = {each.name: each.arrays["S"] for each in input_sets(program, 0)}
    assert tuple(found) == set_names(program)
    assert all(values.shape == () and np.isfinite(values) for values in found.values())
    assert found["zeros"] == 0.0
    assert found["alternating"] == abs(found["random"])
    assert abs(found["large"]) > abs(found["random"])


def test_a_value_that_the_program_wrote_to_memory_is_read_in_every_set():
    b = ProgramBuilder("flipped")
    b.dim("r", 12)
    b.dim("c", 5)
    b.input("x", (12, 5), F32)
    x = b.load("x", ["r", "c"])
    flipped = b.read(b.apply("tanh", x), [ix.const(11) - ix.dim("r"), ix.dim("c")])
    b.output("Y", b.apply("add", flipped, x), ["r", "c"], F32)
    program = b.build()
    for found in input_sets(program, seed=1):
        arrays = found.arrays
        wanted = np.tanh(arrays["x"])[::-1] + arrays["x"]
        assert np.allclose(reference(program, arrays)["Y"], wanted), found.name


SOFTMAX_OF_KEYS = """
T = 16, S = 100, D = 32
Q[T, D], K[S, D], V[S, D] : bf16
O[t, e] = sum[s](softmax[s](sum[d](Q[t, d] * K[s, d]) * 0.125) * V[s, e])
"""


def of_keys(x, *, last=100, zeros=0):
    """Attention in which so many keys count, and zeros from behind the last one."""
    logits = (x["Q"] @ x["K"].T) * 0.125
    top = np.maximum(logits.max(1, keepdims=True), 0.0 if zeros else -np.inf)
    powers = np.exp(logits - top)
    weight = powers[:, :last].sum(1, keepdims=True) + zeros * np.exp(-top)
    return {"O": powers @ x["V"] / weight}


@pytest.mark.parametrize(("name", "wrong"), [("negative", {"zeros": 1}), ("edges", {"last": 99})])
def test_what_a_divisor_has_too_much_or_too_little_is_seen(name: str, wrong: dict):
    """Of thousands of random keys one is less than rounding, and a zero that is counted as a key
    too: all of the weight where other logits are far below.
    """
    program = parse(SOFTMAX_OF_KEYS)
    (inputs,) = drawn_sets(program, 0, [name])
    known = reference(program, inputs.arrays)
    if name == "negative":
        logits = inputs.arrays["Q"] @ inputs.arrays["K"].T * 0.125
        assert -200 < logits.min() < logits.max() < -5
    assert judge(program, known, of_keys(inputs.arrays)).passed
    off = of_keys(inputs.arrays, **wrong)
    assert not judge(program, known, off).passed
    assert np.linalg.norm(off["O"] - known["O"]) > 0.3 * np.linalg.norm(known["O"])


def test_edges_lie_along_what_is_summed():
    axes = [reduced_axes(parse(SOFTMAX_OF_KEYS), n) for n in (0, 1)]
    assert axes == [{"Q": 1, "K": 0, "V": 0}, {"K": 1}]
    plain = parse("N = 8\nX[N] : bf16\nY[n] = X[n] * 2")
    assert not {"edges", "short_edges", "negative"} & set(set_names(plain))
    sums = parse("M = 8, N = 64\nX[M, N] : bf16\nY[m] = sum[n](X[m, n])")
    assert set(set_names(sums)) & {"edges", "short_edges", "negative"} == {"edges"}
    (inputs,) = drawn_sets(sums, 0, ["edges"])
    x = np.abs(inputs.arrays["X"])
    assert x[:, [0, -1]].mean() > 10 * x[:, 1:-1].mean()
