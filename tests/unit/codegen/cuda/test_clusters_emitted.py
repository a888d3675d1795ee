"""Kernels whose blocks form clusters, in the CPU stand-in: partial results are combined in one."""

from __future__ import annotations

from dataclasses import replace

import clusters
import numpy as np
import plans
import pytest

from mirage_py.codegen.cuda.module import emit_cuda
from mirage_py.errors import ScheduleError
from mirage_py.runtime.emulated import run_emulated

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


def attention_reference(arrays, causal):
    z = np.einsum("hqc,hsc->hqs", arrays["Q"], arrays["K"]) * 0.125
    p = np.exp(z)
    if causal:
        rows, keys = z.shape[1:]
        p *= np.arange(keys) <= np.arange(rows)[:, None] + keys - rows
    return np.einsum("hqs,hse->hqe", p, arrays["V"]) / p.sum(-1)[..., None]


def rms_reference(arrays):
    x = arrays["X"]
    norm = np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    return (x * arrays["G"]) @ arrays["W"] / norm


def lora_reference(arrays):
    x = arrays["X"]
    return x @ arrays["W"] + x @ arrays["A"] @ arrays["C"]


def error_of(plan, reference):
    arrays = plans.random_inputs(plan.ugraph.program)
    rounded = {n: a.astype("float16").astype("float64") for n, a in arrays.items()}
    (found,) = run_emulated(plan, rounded).values()
    return plans.relative_error(found, reference(rounded))


@pytest.mark.parametrize("sizes", ATTENTION.values(), ids=ATTENTION)
def test_attention(sizes):
    plan = clusters.cluster_attention(**sizes)
    causal = sizes.get("causal", False)
    assert error_of(plan, lambda arrays: attention_reference(arrays, causal)) < HALF


@pytest.mark.parametrize("sizes", SPLIT_K.values(), ids=SPLIT_K)
def test_split_norm_and_product(sizes):
    assert error_of(clusters.cluster_rms_norm_matmul(**sizes), rms_reference) < HALF


@pytest.mark.parametrize("sizes", SPLIT_K.values(), ids=SPLIT_K)
def test_product_behind_a_sum_over_the_cluster(sizes):
    assert error_of(clusters.cluster_lora(**sizes), lora_reference) < HALF


def test_blocks_meet_once():
    (kernel,) = emit_cuda(clusters.cluster_attention())
    assert kernel.cluster == 4
    assert kernel.capability == 90
    assert "__cluster_dims__(4, 1, 1)" in kernel.source
    # Once to know that all have begun, once for what they have sent.
    assert kernel.body.count("cluster_wait();") == 2


def test_no_clusters_on_older_gpus():
    plan = clusters.cluster_lora()
    options = tuple(o.with_flag("arch", "sm_80") for o in plan.options)
    with pytest.raises(ScheduleError, match="no clusters"):
        emit_cuda(replace(plan, options=options))


def test_clusters_have_a_limit():
    with pytest.raises(ScheduleError, match="at most 16"):
        emit_cuda(clusters.cluster_lora(parts=20))
