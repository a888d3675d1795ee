"""Program against program: equal ones, different ones, and the first difference."""

from __future__ import annotations

import pytest
import torch

import mirage_py
from mirage_py.errors import UnsupportedError
from mirage_py.frontend.spec import parse
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.evaluate.work import program_work
from mirage_py.verify.field_test import programs
from mirage_py.verify.field_test.programs import compare_programs, interface_mismatch
from mirage_py.verify.sizes.joint_sizes import joint_small_sizes
from mirage_py.verify.sizes.shrink import shrink

SOFTMAX = "B = 64, S = 512\nX[B, S] : f16\nY[b, s] = exp(X[b, s]) / sum[s](exp(X[b, s]))"
SHIFTED = """B = 64, S = 512
X[B, S] : f16
let M[r] = max[k](X[r, k])
let E[r, k] = exp(X[r, k] - M[r])
Y[r, k] = E[r, k] / sum[k](E[r, k])
"""
LABELS = """T = 96, V = 80
X[T, V] : f32, L[T] : i32
Y[t] = log(sum[v](exp(X[t, v]))) - sum[v](where(v == L[t], X[t, v], 0))
"""
MATMUL = "M = 40, K = 48, N = 56\nA[M, K], B[K, N] : f16\nC[m, n] = sum[k](A[m, k] * B[k, n])"
CAUSAL = """T = 64, S = 96
X[T, S], V[S] : f32
Y[t] = sum[s](where(s <= t + 32, exp(X[t, s]), 0) * V[s])
"""


def equal(left: str, right: str) -> bool:
    return compare_programs(parse(left), parse(right)).equal


def test_a_program_equals_itself():
    found = compare_programs(parse(MATMUL), parse(MATMUL))
    assert found.equal
    assert found.trials == 4
    assert found.samples == 4
    assert len(found.primes) == 4


def test_spellings_of_softmax():
    assert equal(SOFTMAX, SHIFTED)
    assert equal(SOFTMAX, SOFTMAX.split("Y", maxsplit=1)[0] + "Y[b, s] = softmax[s](X[b, s])")


def test_an_order_of_factors():
    assert equal(MATMUL, MATMUL.replace("A[m, k] * B[k, n]", "B[k, n] * A[m, k]"))


@pytest.mark.parametrize(
    ("old", "new"),
    [("A[m, k] * B[k, n]", "A[m, k] * B[k, n] * 1.0001"), ("A[m, k] *", "A[m, k]^2 *")],
)
def test_a_small_change(old: str, new: str):
    found = compare_programs(parse(MATMUL), parse(MATMUL.replace(old, new)))
    assert not found.equal
    assert found.difference is not None
    assert found.difference.output == "C"


@pytest.mark.parametrize(
    "wrong", ["where(v == L[t], 0 * X[t, v], 0)", "where(v == L[t], X[t, v]^2, 0)", "0 * L[t]"]
)
def test_a_label_that_is_not_minded(wrong: str):
    right = "sum[v](where(v == L[t], X[t, v], 0))"
    assert equal(LABELS, LABELS.replace("where(v == L[t], X[t, v], 0)", "X[t, v] * (L[t] == v)"))
    assert not equal(
        LABELS, LABELS.replace(right, wrong if "where" not in wrong else f"sum[v]({wrong})")
    )


def test_a_mask_that_is_one_off():
    """Small sizes move its border, so that both agree there: the real sizes tell them apart."""
    assert equal(CAUSAL, CAUSAL)
    assert not equal(CAUSAL, CAUSAL.replace("t + 32", "t + 31"))


def test_a_transposed_result_differs():
    square = "M = 9\nA[M, M] : f32\nC[m, n] = A[m, n] + 1"
    assert not equal(square, square.replace("C[m, n]", "C[n, m]"))


def test_outputs_are_matched_by_name_first():
    both = "B = 8\nX[B] : f32\nY[b] = X[b] + 1\nZ[b] = X[b] * 2"
    swapped = "B = 8\nX[B] : f32\nZ[b] = X[b] * 2\nY[b] = X[b] + 1"
    assert equal(both, swapped)
    assert equal(both, both.replace("Y", "P").replace("Z", "Q"))
    assert not equal(both, swapped.replace("Y", "P").replace("Z", "Q"))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("K = 48", "K = 49", "input A is f16[40, 48] in the first, f16[40, 49] in the second"),
        ("f16", "bf16", "input A is f16[40, 48] in the first, bf16[40, 48] in the second"),
        ("A", "Q", "input A is missing in the second, which has Q, B"),
        ("\nC[m, n]", "\nD[m] = sum[k](A[m, k])\nC[m, n]", "1 outputs in the first, 2"),
    ],
)
def test_tensors_that_differ(old: str, new: str, says: str):
    found = compare_programs(parse(MATMUL), parse(MATMUL.replace(old, new)))
    assert not found.equal
    assert found.reason.startswith(says)


def test_what_only_the_second_reads():
    more = MATMUL.replace("B[K, N]", "B[K, N], D[N]").replace("B[k, n])", "B[k, n]) + D[n]")
    found = compare_programs(parse(MATMUL), parse(more))
    assert found.reason == "input D is missing in the first, which has A, B"


def test_a_program_without_a_value():
    zero = "B = 8\nX[B] : f32\nY[b] = 1 / (X[b] - X[b])"
    with pytest.raises(UnsupportedError, match="divides by zero"):
        compare_programs(parse(zero), parse(zero))


def _shrunk(left: Program, right: Program) -> tuple[Program, Program]:
    sizes = joint_small_sizes(left, right, [("Y", "Y")], seed=0)
    return shrink(left, sizes.left), shrink(right, sizes.right)


def _tensor(program: Program) -> list[str]:
    return [str(t) for t in program.tensors.values()]


HEADS = "H = 32, D = 64\nindex h < H, d < D\nX[H * D, 128] : f32\nY[n] = sum[h, d](X[h * D + d, n])"
ROWS = "N = 128\nX[2048, N] : f32\nY[n] = sum[k](X[k, n])"


def test_axes_that_both_split_alike_shrink():
    left, right = _shrunk(parse(HEADS), parse(HEADS))
    assert _tensor(left) == _tensor(right)
    assert left.sizes["h"] < 32
    assert left.sizes["d"] < 64


def test_an_axis_that_one_splits_has_the_product_of_its_parts():
    left, right = _shrunk(parse(HEADS), parse(ROWS))
    assert interface_mismatch(left, right) == ""
    assert left.sizes["h"] < 32
    assert left.sizes["d"] < 64
    assert left.sizes["h"] * left.sizes["d"] == right.sizes["k"]
    assert left.sizes["n"] == right.sizes["n"] < 128
    assert equal(HEADS, ROWS)
    assert not equal(HEADS, ROWS.replace("X[k, n])", "X[k, n]) * 1.0001"))


@pytest.mark.parametrize("condition", ["h < 5", "(h * D + d) * d > 99"])
def test_a_split_axis_that_conditions_depend_on_keeps_its_size(condition: str):
    masked = HEADS.replace("X[h * D + d, n])", f"where({condition}, X[h * D + d, n], 0))")
    left, right = _shrunk(parse(masked), parse(ROWS))
    assert (left.sizes["h"], left.sizes["d"], right.sizes["k"]) == (32, 64, 2048)
    assert not equal(masked, ROWS)


def test_axes_split_in_two_ways_keep_their_size():
    other = HEADS.replace("H = 32, D = 64", "H = 16, D = 128")
    left, right = _shrunk(parse(HEADS), parse(other))
    assert (left.sizes["h"], right.sizes["h"]) == (32, 16)
    assert equal(HEADS, other)


POOLED = """
H = 111, C = 40, K = 3, I = 55, N = 24
X[C, H], W[C, N] : f32
index k < K, i < I
Y[i, n] = sum[c](max[k](X[c, 2 * i + k]) * W[c, n])
"""
SPLIT_POOLED = """
H = 111, C = 40, K = 3, I = 55, N = 24
X[C, H], W[C, N] : f32
index k < K, i < I, p < 5, c < 8
Y[i, n] = sum[p, c](max[k](X[p * 8 + c, 2 * i + k]) * W[p * 8 + c, n])
"""


def test_axes_that_are_read_by_the_same_windows_shrink():
    left, right = _shrunk(parse(POOLED), parse(SPLIT_POOLED))
    assert interface_mismatch(left, right) == ""
    assert left.sizes["i"] == right.sizes["i"] < 20
    assert left.sizes["k"] == right.sizes["k"] == 3
    assert equal(POOLED, SPLIT_POOLED)
    assert not equal(POOLED, SPLIT_POOLED.replace("2 * i + k", "i + 2 * k"))
    assert not equal(POOLED, SPLIT_POOLED.replace("max[k]", "sum[k]"))


def test_positions_that_are_data_fit_any_extent():
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(x, y, reduction="none")

    given = torch.zeros(96, 4000), torch.zeros(96, dtype=torch.int64)
    program = mirage_py.trace(loss, *given)
    sizes = joint_small_sizes(program, program, [("out", "out")], seed=0)
    assert max(sizes.left.values()) < 20
    assert compare_programs(program, program).equal


def scaled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(x, w, padding=1) * 2


def of_scaled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(x, w * 2, padding=1)


def of_other_padding(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    found = torch.nn.functional.conv2d(x, w * 2, padding=(1, 0))
    return torch.nn.functional.pad(found, (1, 1))


def test_axes_with_padding_shrink(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(programs, "MAX_TRIAL_WORK", 1e6)
    inputs = torch.empty(4, 4, 64, 64), torch.empty(4, 4, 3, 3)
    left, right = (mirage_py.trace(f, *inputs) for f in (scaled, of_scaled))
    assert program_work(left) > 1e6
    found = compare_programs(left, right, over_reals=False, real_sizes=False)
    assert (found.equal, found.trials) == (True, 4)


def test_a_difference_in_the_padding_is_seen():
    inputs = torch.empty(2, 2, 9, 9), torch.empty(2, 2, 3, 3)
    left, right, wrong = (
        mirage_py.trace(f, *inputs) for f in (scaled, of_scaled, of_other_padding)
    )
    assert compare_programs(left, right).equal
    assert not compare_programs(left, wrong).equal


def test_elements_that_are_the_same_by_going_round_the_end_are_the_same():
    texts = [
        "N = 40\nX[N] : f32\nindex n < N\nY[n] = X[(n + 39) % 40] * 2",
        "N = 40\nX[N] : f32\nindex n < N\nY[n] = X[(n + 79) % 40] * 2",
    ]
    left, right = map(parse, texts)
    assert compare_programs(left, right).equal
    assert not compare_programs(left, parse(texts[0].replace("39", "38"))).equal
