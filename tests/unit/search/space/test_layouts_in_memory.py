"""The order of axes in which values are stored between kernels and parts."""

from __future__ import annotations

import pytest

import mirage_py
from mirage_py.search.space.layouts_in_memory import axes_as_computed


@pytest.mark.parametrize(
    ("inputs", "result", "order"),
    [
        ("X[B, S, D], W[N, D]", "Y[b, s, n] = sum[d](X[b, s, d] * W[n, d])", "bsn"),
        # All heads are one axis of the weights: the result of a layer has its features last.
        (
            "X[B, H, S, D], W[N, H * D]",
            "Y[b, s, n] = sum[h, d](X[b, h, s, d] * W[n, 4 * h + d])",
            "bsn",
        ),
        # Channels of a convolution stay where they are.
        ("X[B, D, S], W[N, D]", "Y[b, n, s] = sum[d](X[b, d, s] * W[n, d])", "bns"),
    ],
    ids=["layer", "layer behind heads", "channels"],
)
def test_results_of_matmuls_lie_as_torch_has_them(inputs: str, result: str, order: str) -> None:
    heads = ", H = 6" if "H" in inputs else ""
    program = mirage_py.parse(f"B = 2, S = 3, D = 4, N = 5{heads}\n{inputs} : bf16\n{result}\n")
    (output,) = program.outputs
    assert axes_as_computed(program)[output.node] == tuple(order)
