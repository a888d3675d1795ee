"""Kernels whose blocks form clusters, in the CPU stand-in: partial results are combined in one."""

from __future__ import annotations

import clusters
import numpy as np
import plans
import pytest
from cuda_plans import cuda_plan, error_of, for_cuda, kernel_of

from mirage_py.errors import ScheduleError

HALF = 2e-3
ATTENTION = {
    "tails": {"parts": 4},
    "two rows, idle blocks": {"parts": 8, "rows": 2, "keys": 256, "heads": 1},
    "causal": {"parts": 4, "keys": 256, "causal": True, "heads": 1},
    "16 blocks": {"parts": 16, "keys": 512, "rows": 18, "heads": 1},
}
SPLIT_K = {
    "tails": {"parts": 4},
    "one row": {"parts": 8, "b": 1, "n": 100},
    "16 blocks": {"parts": 16, "b": 9, "n": 72},
    "two blocks": {"parts": 2, "d": 192, "num_stages": 1},
}


SOFTMAX = """
kernel softmax {{
  grid n by {tile} in cluster, b by {rows}
  %0 = load X[b, n]
  %1 = max[n] %0
  %2 = shift %1
  %3 = sub %0, %2
  %4 = exp %3
  %5 = sum[n] %4
  %6 = div %4, %5
  store Y[b, n] = %6
}}
"""
# Rows, columns, columns of a block, rows of a block.
SHARED_ROWS = [(5, 512, 128, 2), (3, 2048, 128, 1), (9, 256, 128, 8)]


def attention_reference(arrays, causal):
    rows, keys = arrays["Q"].shape[1], arrays["K"].shape[1]
    seen = np.tri(rows, keys, keys - rows, dtype=bool) if causal else None
    scaled = {"Q": arrays["Q"] * 0.125, "K": arrays["K"].swapaxes(1, 2), "V": arrays["V"]}
    return plans.attention_reference(scaled, seen)


def lora_reference(arrays):
    x = arrays["X"]
    return x @ arrays["W"] + x @ arrays["A"] @ arrays["C"]


@pytest.mark.parametrize("sizes", ATTENTION.values(), ids=ATTENTION)
def test_attention(sizes):
    plan = clusters.cluster_attention(**sizes)
    causal = sizes.get("causal", False)
    assert error_of(plan, lambda arrays: attention_reference(arrays, causal)) < HALF


@pytest.mark.parametrize("sizes", SPLIT_K.values(), ids=SPLIT_K)
def test_split_norm_and_product(sizes):
    assert error_of(clusters.cluster_rms_norm_matmul(**sizes), plans.rms_reference) < HALF


@pytest.mark.parametrize("sizes", SPLIT_K.values(), ids=SPLIT_K)
def test_product_behind_a_sum_over_the_cluster(sizes):
    assert error_of(clusters.cluster_lora(**sizes), lora_reference) < HALF


@pytest.mark.parametrize("sizes", SHARED_ROWS, ids=str)
def test_blocks_share_rows(sizes):
    b, n, tile, rows = sizes
    lines = f"B = {b}, N = {n}\nX[B, N] : f16\nlet E[b, n] = exp(X[b, n])\n"
    spec = f"{lines}Y[b, n] = E[b, n] / sum[n](E[b, n])"
    plan = cuda_plan(spec, SOFTMAX.format(tile=tile, rows=rows))
    kernel = kernel_of(plan)
    assert kernel.cluster == n // tile
    # Once to know that all have begun, once for the maximum, once for the sum.
    assert kernel.body.count("cluster_wait();") == 3
    assert error_of(plan, lambda arrays: softmax(arrays["X"])) < HALF


def softmax(x):
    e = np.exp(x)
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("name", ["cluster_attention", "cluster_lora"])
def test_text(name, golden):
    golden.check(kernel_of(getattr(clusters, name)()).body, f"cuda/{name}.cu.txt")


def test_blocks_meet_once():
    kernel = kernel_of(clusters.cluster_attention())
    assert kernel.cluster == 4
    assert kernel.capability == 90
    assert "__cluster_dims__(4, 1, 1)" in kernel.source
    # Once to know that all have begun, once for what they have sent.
    assert kernel.body.count("cluster_wait();") == 2


def test_no_clusters_on_older_gpus():
    plan = for_cuda(clusters.cluster_lora(), arch="sm_80")
    with pytest.raises(ScheduleError, match="no clusters"):
        kernel_of(plan)


def test_clusters_have_a_limit():
    with pytest.raises(ScheduleError, match="at most 16"):
        kernel_of(clusters.cluster_lora(parts=20))
