"""Programs of the size that people fuse by hand: the space ends, and the wanted kernel is in it."""

from __future__ import annotations

import pytest
from nightly import NIGHTLY
from oracles.known_forms.registry import forms_of
from unit.search.kernels import block_of, example, found, loops_of, named, spread

from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import normalise
from mirage_py.reasons import Code
from mirage_py.search.extract.family import ONE_KERNEL, SPLIT, TWO_KERNELS
from mirage_py.ugraph.checks.validate import validate_ugraph

# The slowest takes as long as all others together: at night.
SLOW = "qknorm_attention_out"
ATTENTION = ("causal_attention", "sliding_window_attention", "softcap_attention")
NAMES = (
    *ATTENTION,
    "cross_entropy",
    "cross_entropy_shifted",
    "layernorm_linear_gelu",
    "lora_gated_mlp",
    "residual_norm_mlp",
    "residual_norm_mlp_down",
    *((SLOW,) if NIGHTLY else ()),
)


def having(name, kind, *forms):
    return [f for f, had in named(name) if f.kind == kind and {*forms} <= {*had}]


@pytest.mark.parametrize("name", NAMES)
def test_the_factored_space_is_exhausted(name):
    result = example(f"{name}.math")
    assert result.exhausted
    assert result.saturated
    cuts = (Code.POOL_OUTGREW, Code.BOUND_ON_NODES, Code.BOUND_ON_ROUNDS, Code.REFUTED)
    assert not any(r.code in cuts for r in result.reasons)
    assert {f.kind for f in result.families} >= {ONE_KERNEL, TWO_KERNELS}


@pytest.mark.parametrize("name", NAMES)
def test_families_keep_the_rules(name):
    for family in spread(example(f"{name}.math").families, 8):
        validate_ugraph(family.ugraph)


def test_residual_norm_and_gated_products_in_one_kernel_with_two_outputs():
    families = having(
        "residual_norm_mlp",
        ONE_KERNEL,
        "both products in one loop",
        "matmul before division, both sums in one loop",
        "output stored by the first block",
    )
    assert families
    for family in families:
        block = block_of(family)
        stores = {n.access.tensor: n for _, n in block.stores()}
        # The blocks along f all have the new residual; the first one stores it.
        assert block.predicated_axes(stores["H"]) == ("f",)
        assert block.predicated_axes(stores["Y"]) == ()
        assert all(loop == "d" for loop, _ in loops_of(block))
    assert any(len(loops_of(block_of(f))) == 1 for f in families)


def test_the_whole_mlp_in_two_kernels():
    families = having(
        "residual_norm_mlp_down",
        TWO_KERNELS,
        "both products in one loop",
        "matmul before division, both sums in one loop",
        "gated product, then projection",
    )
    assert families
    for family in families:
        first, last = family.ugraph.kernels
        assert [n.op for n in first.nodes].count("matmul") == 2
        assert [n.op for n in last.nodes].count("matmul") == 1
        assert "f" in [a.dim for a in first.grid]
        assert "f" not in [a.dim for a in last.grid]


@pytest.mark.parametrize("name", ATTENTION)
def test_masked_attention_is_fused_and_split(name):
    fused = having(name, ONE_KERNEL, "fused attention")
    split = having(name, SPLIT, "split-KV attention with combining kernel")
    assert fused
    assert split
    for family in fused:
        ((loop, body),) = loops_of(block_of(family))
        assert loop == "s"
        assert "mask" in body
    for family in split:
        first, last = family.ugraph.kernels
        assert "mask" in [n.op for n in first.nodes]
        assert "mask" not in [n.op for n in last.nodes]


@pytest.mark.parametrize("name", ["cross_entropy", "cross_entropy_shifted"])
def test_cross_entropy_streams_over_the_vocabulary(name):
    streamed = having(name, ONE_KERNEL, "streamed log-sum-exp")
    assert streamed
    for family in streamed:
        assert [loop for loop, _ in loops_of(block_of(family))] == ["v"]
    assert any(body.count("accum_sum") == 2 for f in streamed for _, body in loops_of(block_of(f)))
    assert having(name, SPLIT, "split log-sum-exp with combining kernel")


def test_a_gated_mlp_with_low_rank_corrections_is_one_kernel():
    assert having("lora_gated_mlp", ONE_KERNEL, "one-kernel LoRA", "both products in one loop")
    concatenated = having("lora_gated_mlp", ONE_KERNEL, "concatenated LoRA")
    assert any([n.op for n in block_of(f).nodes].count("matmul") == 6 for f in concatenated)


# Attention as above without norms and batch: a tenth of the search.
PROJECTED = """
H = 8, T = 64, S = 1024, D = 64, M = 512
Q[H, T, D], K[H, S, D], V[H, S, D], W[H, D, M] : f16
let Z[h, t, s] = sum[d](Q[h, t, d] * K[h, s, d]) * 0.125
let A[h, t, e] = sum[s](softmax[s](Z[h, t, s]) * V[h, s, e])
O[t, m] = sum[h, e](A[h, t, e] * W[h, e, m])
"""
PROJECTION = "attention, then projection"


def test_attention_and_its_projection_in_two_kernels():
    families = [f for f in found(normalise(parse(PROJECTED))).families if f.kind == TWO_KERNELS]
    kernels_of_a_projection([f for f in families if PROJECTION in forms_of(f)])


@pytest.mark.skipif(not NIGHTLY, reason="ten seconds of search; make nightly runs it")
def test_attention_with_norms_and_its_projection_in_two_kernels():
    norms = "QK-norm folded into attention"
    kernels_of_a_projection(having(SLOW, TWO_KERNELS, norms, PROJECTION), "b")


def kernels_of_a_projection(families, *batch):
    assert families
    for family in families:
        first, last = family.ugraph.kernels
        assert [loop for loop, _ in loops_of(first)] == ["s"]
        assert {a.dim for a in first.grid} == {*batch, "h", "t", "e"}
        # The heads that were on the first grid are contracted.
        assert "h" in [d for n in last.nodes if n.op in ("sum", "matmul") for d in n.reduced]


def test_layer_norm_linear_bias_and_gelu_are_one_kernel():
    families = having("layernorm_linear_gelu", ONE_KERNEL, "fused activation")
    assert families
    for family in families:
        assert [n.op for n in block_of(family).nodes].count("gelu") == 1
    assert any(0 < len(loops_of(block_of(f))) <= 3 for f in families)
    assert having("layernorm_linear_gelu", ONE_KERNEL, "normalise, then matmul")
