"""The prediction for a program as a compiler for PyTorch fuses it."""

from __future__ import annotations

import pytest

from mirage_py.frontend.spec import parse
from mirage_py.search.model.baseline_model import fused_model_us
from mirage_py.search.model.model_constants import constants_of
from mirage_py.targets import target

H200 = target("h200")
INPUTS = {"X": "X[B, N]", "Z": "Z[B, N]", "G": "G[N]"}


def predicted(text: str, sizes: str = "") -> float:
    read = ", ".join(d for name, d in INPUTS.items() if f"{name}[" in text)
    return fused_model_us(parse((sizes or f"B = 2048, N = 4096\n{read} : f16\n") + text), H200)


def moved_us(*elements: int) -> float:
    """A kernel that waits for the memory."""
    known = constants_of(H200)
    moved = 2 * sum(elements) / H200.dram_bytes_per_us
    start_us = known.ramp * H200.memory_latency_us + H200.launch_us
    return max(moved, moved / known.dram + start_us)


def product_us(flops: float, *elements: int) -> float:
    """A matmul of the library."""
    known = constants_of(H200)
    memory = 2 * sum(elements) / H200.dram_bytes_per_us / known.library_memory
    compute = flops / H200.tensor_flops_per_us / known.library_tensor
    return max(memory, compute) + H200.launch_us + known.library_us


X = 2048 * 4096


def test_a_program_without_operators_is_a_copy():
    copied = predicted("Y[b, n] = X[b, n]")
    squared = predicted("Y[b, n] = X[b, n]^2")
    assert copied == squared == pytest.approx(moved_us(X, X))


def test_an_output_that_an_operator_makes_is_written_by_it():
    once = predicted("Y[b, n] = exp(X[b, n])")
    both = predicted("Y[b, n] = exp(X[b, n])\nV[b, n] = X[b, n]")
    assert both == 2 * once


LAYER_NORM = """M[b] = mean[n](X[b, n])
Y[b, n] = (X[b, n] - M[b]) * G[n] / sqrt( mean[n]((X[b, n] - M[b])^2) + 1e-6 )"""


@pytest.mark.parametrize(
    "chain",
    [
        "Y[b, n] = exp(X[b, n] * 3 + 1) * G[n]",
        "Y[b, n] = X[b, n] * G[n] / sqrt( mean[n](X[b, n]^2) + 1e-6 )",
        LAYER_NORM,
    ],
)
def test_a_chain_is_one_kernel(chain: str):
    outputs = 2048 if "M[b]" in chain else 0  # M is an output too
    assert predicted(chain) == pytest.approx(moved_us(X, X, 4096, outputs), rel=1e-6)


def test_softmax_is_one_kernel():
    text = "Y[b, n] = exp(X[b, n] - max[n](X[b, n])) / sum[n](exp(X[b, n] - max[n](X[b, n])))"
    assert predicted(text) == pytest.approx(moved_us(X, X))


def test_outputs_of_the_same_inputs_are_one_kernel():
    text = "Y[b, n] = exp(X[b, n] + Z[b, n])\nV[b, n] = tanh(X[b, n] * Z[b, n])"
    assert predicted(text) == pytest.approx(moved_us(X, X, X, X))


def test_reductions_of_different_dimensions_are_two_kernels():
    text = "R[b] = sum[n](X[b, n])\nC[n] = sum[b](X[b, n])"
    assert predicted(text) == pytest.approx(moved_us(X, 2048) + moved_us(X, 4096))


def test_what_comes_before_and_after_a_matmul_goes_through_memory():
    sizes = "B = 2048, N = 4096, K = 2048\nX[B, N], W[N, K] : f16\n"
    product = predicted("Y[b, k] = sum[n](X[b, n] * W[n, k])", sizes)
    assert product == pytest.approx(product_us(2 * 2048 * 4096 * 2048))
    out = 2048 * 2048
    after = predicted("Y[b, k] = exp(sum[n](X[b, n] * W[n, k]))", sizes)
    assert after == pytest.approx(product + moved_us(out, out))
    before = predicted("Y[b, k] = sum[n](exp(X[b, n]) * W[n, k])", sizes)
    assert before == pytest.approx(product + moved_us(X, X))


def test_attention_written_out_is_three_kernels():
    sizes = "H = 32, Q = 1024, S = 1024, D = 64\nA[H, Q, D], K[H, S, D], V[H, S, D] : f16\n"
    scores = "sum[d](A[h, q, d] * K[h, s, d])"
    text = (
        f"Y[h, q, d] = sum[s]( exp({scores} / 8 - max[s]({scores} / 8)) "
        f"/ sum[s](exp({scores} / 8 - max[s]({scores} / 8))) * V[h, s, d] )"
    )
    square, rows = 32 * 1024 * 1024, 32 * 1024 * 64
    product = product_us(2 * square * 64, square, 2 * rows)
    assert predicted(text, sizes) == pytest.approx(2 * product + moved_us(square, square))


def test_matmuls_of_float32_do_not_run_on_tensor_cores():
    text = "B = 2048, N = 4096, K = 2048\nX[B, N], W[N, K] : %s\n"
    product = "Y[b, k] = sum[n](X[b, n] * W[n, k])"
    assert predicted(product, text % "f32") > 10 * predicted(product, text % "f16")


def test_long_programs_are_quick():
    lets = "".join(f"A{n + 1}[b, n] = A{n}[b, n] + A{n}[b, n] * 2\n" for n in range(60))
    text = "let A0[b, n] = X[b, n] * 2\n" + "".join(f"let {line}\n" for line in lets.splitlines())
    assert predicted(text + "Y[b, n] = A60[b, n]") > moved_us(X, X)


def test_labels_of_64_bits_make_no_result_wider():
    """The logits of a loss were 8 bytes each, and their matmul one of float32."""

    def text(labels):
        return f"""M = 256, K = 512, N = 1024
X[M, K], W[K, N] : bf16
{labels}
let Y[m, n] = sum[k](X[m, k] * W[k, n])
Z[M] : f32
Z[m] = sum[n](exp(Y[m, n]))"""

    plain = fused_model_us(parse(text("")), H200)
    labelled = text("L[M] : i64").replace("exp(Y[m, n]))", "exp(Y[m, n])) + L[m]")
    assert fused_model_us(parse(labelled), H200) == pytest.approx(plain, rel=0.02)
