"""Values that a kernel would compute again, and what is cut because of them."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from mirage_py.frontend.spec import parse
from mirage_py.frontend.torch import trace
from mirage_py.pipeline import pipeline
from mirage_py.pipeline.partition.partition import partition
from mirage_py.pipeline.partition.rereads import passes_bytes, prologue_bytes, reread_values
from mirage_py.pipeline.selection.request import Request
from mirage_py.search.model.baseline_model import fused_model_us
from mirage_py.targets import target


def _shaped(*shapes):
    return [torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in shapes]


def _mlp(x, w, v):
    return functional.silu(x @ w) @ v


def _attention(q, k, v):
    return functional.scaled_dot_product_attention(q, k, v)


def _projected(x, w, u, k):
    return ((x @ w) @ (k @ u).mT).softmax(-1) @ (k @ w)


def _modulated(x, c, w):
    shift, scale = (functional.silu(c) @ w).chunk(2, dim=1)
    return functional.layer_norm(x, (x.shape[-1],)) * (1 + scale[:, None]) + shift[:, None]


_MODULATED = ((2, 4096, 1536), (2, 1536), (1536, 3072))


@pytest.mark.parametrize(
    ("function", "shapes", "count"),
    [
        (_mlp, ((512, 1024), (1024, 4096), (4096, 1024)), 1),
        (_mlp, ((512, 1024), (1024, 4096), (4096, 128)), 0),
        (_attention, ((2, 8, 2048, 128),) * 3, 0),
        (_projected, ((1024, 512), (512, 64), (512, 64), (2048, 512)), 3),
        (_modulated, _MODULATED, 2),
    ],
    ids=["mlp", "narrow", "attention", "projections", "gates"],
)
def test_values_that_are_read_along_more_than_a_block(function, shapes, count):
    assert len(reread_values(trace(function, *_shaped(*shapes)))) == count


def test_gates_of_a_sample_are_made_before_its_rows():
    normal = pipeline.normalise(trace(_modulated, *_shaped(*_MODULATED)))
    first, second = partition(normal).parts
    assert [t.shape for t in (o.tensor for o in first.outputs)] == [(2, 1536)] * 2
    assert not any(node.op == "matmul" for node in second.nodes)


@pytest.mark.parametrize(
    ("times", "rows", "is_cut"),
    [(1.0, (), False), (3.0, (), True), (math.inf, (), True), (3.0, ("batch",), False)],
)
def test_what_no_plan_is_a_match_for_is_cut_after_all(times, rows, is_cut):
    normal = pipeline.normalise(trace(_modulated, *_shaped(*_MODULATED)))
    h200 = target("h200")
    best = SimpleNamespace(time_us=times * fused_model_us(normal, h200))
    ranking = SimpleNamespace(
        instances=[SimpleNamespace(estimate=best)] if times < math.inf else [],
        request=Request("h200", rows=rows),
        normal=normal,
        target=h200,
    )
    found = pipeline._cut_after_all(ranking)
    assert (len(found.parts) if found else 0) == 2 * is_cut


def _block(x, shift, first, second):
    """Two large layers behind a norm."""
    rows = torch.nn.functional.layer_norm(x, x.shape[-1:]) + shift[:, None]
    return x + torch.nn.functional.gelu(rows @ first, approximate="tanh") @ second


@pytest.mark.parametrize(("times", "is_cut"), [(0.9, False), (1.1, True)])
def test_large_layers_that_are_faster_one_by_one_are_cut_after_all(times, is_cut):
    """Parts are chosen by measurement: the MLP of DiT took 403 us whole, 369 in parts."""
    shapes = (32, 256, 1152), (32, 1152), (1152, 4608), (4608, 1152)
    normal = pipeline.normalise(trace(_block, *_shaped(*shapes)))
    h200 = target("h200")
    time_us = times * fused_model_us(normal, h200, own_matmuls=True)
    ranking = SimpleNamespace(
        instances=[SimpleNamespace(estimate=SimpleNamespace(time_us=time_us))],
        request=Request("h200"),
        normal=normal,
        target=h200,
    )
    assert (pipeline._cut_after_all(ranking) is not None) == is_cut


def _normalised_product(x, w, gain):
    return torch.relu(torch.nn.functional.group_norm(x @ w, 4, gain))


@pytest.mark.parametrize("times", [1.0, math.inf])
def test_a_norm_that_no_plan_computes_in_time_is_cut_off_from_its_matmul(times):
    normal = pipeline.normalise(trace(_normalised_product, *_shaped((64, 32), (32, 16), (16,))))
    assert len(partition(normal).parts) == 1
    h200 = target("h200")
    best = SimpleNamespace(time_us=times * fused_model_us(normal, h200))
    found = pipeline._cut_after_all(
        SimpleNamespace(
            instances=[SimpleNamespace(estimate=best)] if times < math.inf else [],
            request=Request("h200"),
            normal=normal,
            target=h200,
        )
    )
    if times == 1.0:
        assert found is None
        return
    product, norm = found.parts
    assert [node.op for node in product.nodes] == ["load", "load", "matmul"]
    assert not any(node.op == "matmul" for node in norm.nodes)
    assert "each matmul by itself" in found.reason


NORM = """B = {b}, C = 8
X[B, C], R[B, C] : bf16
let A[c] = sum[b](X[b, c]) / {b}
let V[c] = sum[b](square(X[b, c] - A[c])) / {b}
Y[b, c] = (X[b, c] - A[c]) / sqrt(V[c] + 0.00001) + R[b, c]"""


def test_rows_that_no_block_holds_are_read_again_once_statistics_are_known():
    """For the mean and the variance they are read once; what is added is read at the end alone."""
    assert passes_bytes(parse(NORM.format(b=1 << 15))) == (1 << 15) * 8 * 2
    assert passes_bytes(parse(NORM.format(b=1 << 14))) == 0
    *statistics, _ = NORM.format(b=1 << 15).replace("let V[c]", "V[c]").splitlines()
    assert passes_bytes(parse("\n".join(statistics).replace(", R[B, C]", ""))) == 0


def test_results_of_matmuls_are_written_to_be_normalised():
    text = """B = 32768, C = 8, D = 16
X[B, D], W[D, C] : bf16
let P[b, c] = sum[d](X[b, d] * W[d, c])
let A[c] = sum[b](P[b, c]) / 32768
Y[b, c] = P[b, c] - A[c]"""
    assert passes_bytes(parse(text)) == 2 * 32768 * 8 * 2


@pytest.mark.parametrize(
    ("operand", "columns", "elements"),
    [
        ("X[b, d]", 8, 0),
        ("relu(X[b, d])", 8, 64 * 16),
        ("relu(X[b, d])", 192, 2 * 64 * 16),
        # Either operand may have such a factor, and the result such a divisor.
        ("X[b, d] * G[d]", 8, 0),
        ("X[b, d] / S[b]", 8, 0),
        ("relu(X[b, d]) * G[d] / S[b]", 8, 64 * 16),
    ],
)
def test_operands_that_are_computed_go_through_registers(operand: str, columns: int, elements: int):
    text = f"""B = 64, C = {columns}, D = 16
X[B, D], W[D, C], G[D], S[B] : bf16
Z[b, d] = G[d] * S[b]
Y[b, c] = sum[d](({operand}) * W[d, c])"""
    assert prologue_bytes(parse(text)) == 2 * elements
