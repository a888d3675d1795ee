"""A decode step of Llama with a static cache: what is left between its products, and its values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from benchmarks.whole_models.step import step_function
from mirage_py.dynamo.compile.decompositions import decompositions
from mirage_py.dynamo.regions.nodes import base_name
from mirage_py.dynamo.regions.regions import Cut, cut
from mirage_py.dynamo.regions.writes import in_place, put_writes, take_writes
from mirage_py.targets import target

Compiled = Callable[..., Any]

LAYERS, CONTEXT = 2, 192
_LLAMA_1B = {
    "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 8192, "tie_word_embeddings": True,
}  # fmt: skip
_TINY = {
    "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 61,
}  # fmt: skip


def llama(sizes: dict[str, Any], device: str = "cpu") -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device(device):
        return LlamaForCausalLM(LlamaConfig(**sizes)).eval().requires_grad_(False)


def empty_cache(model: Any) -> Any:
    from transformers import StaticCache

    return StaticCache(config=model.config, max_cache_len=CONTEXT)


@pytest.fixture(scope="module")
def decoded() -> Cut:
    """The cut of a step at the sizes of Llama-3.2-1B; the numbers are whatever lies in memory."""
    from torch._dynamo.backends.common import aot_autograd

    found: list[Cut] = []

    def compiler(module: torch.fx.GraphModule, inputs: Any) -> Any:
        writes = take_writes(module.graph)
        written = in_place(module.graph, writes)
        how = {"rest_fuses": True, "rest_tunes": True, "in_place": written}
        found.append(cut(module.graph, target("h200"), **how))
        put_writes(module.graph, writes)
        return module.forward

    def backend(module: torch.fx.GraphModule, inputs: Any) -> Any:
        return aot_autograd(
            fw_compiler=compiler,
            decompositions=decompositions(),
            keep_inference_input_mutations=True,
        )(module, inputs)

    sizes = _LLAMA_1B | {"num_hidden_layers": LAYERS}
    model = llama(sizes, "meta").to(torch.bfloat16).to_empty(device="cpu")
    cache = empty_cache(model)
    with torch.no_grad():
        ids = torch.zeros((1, 1), dtype=torch.int64)
        # The cache is made by its first call.
        step_function(model)(ids, cache)
        torch.compile(step_function(model), backend=backend, fullgraph=True, dynamic=False)(
            ids, cache
        )
    torch._dynamo.reset()
    (only,) = found
    return only


def test_nothing_is_left_between_the_products_of_a_decode_step(decoded: Cut):
    inside = {n: None for region in decoded.regions for n in region.nodes}
    left = [n for n in decoded.order if n not in inside]
    after_products: dict[torch.fx.Node, None] = {}
    for node in decoded.order:
        reads = _sources(node, dict.fromkeys(decoded.order))
        if base_name(node) == "mm" or any(n in after_products for n in reads):
            after_products[node] = None
    assert not [base_name(n) for n in left if n in after_products]
    # Angles of positions are made once, before, and the first norm.
    assert "index_copy" not in map(base_name, left)
    assert len(left) < 20


def test_a_layer_is_five_regions(decoded: Cut):
    shown = ("mm", "cat")
    products = [[base_name(n) for n in r.nodes if base_name(n) in shown] for r in decoded.regions]
    attention = [r for r in decoded.regions if any("scaled_dot" in base_name(n) for n in r.nodes)]
    assert len(attention) == LAYERS
    assert products.count(["mm", "mm", "mm", "cat", "cat"]) == LAYERS
    # The first of them writes the cache.
    written = [[base_name(n) for n in r.outputs].count("index_copy") for r in decoded.regions]
    assert [n for n in written if n] == [2] * LAYERS
    # And the norm with the head.
    assert len(decoded.regions) == 5 * LAYERS + 1


def test_logits_and_cache_are_those_of_eager(compiled: Compiled):
    model = llama(_TINY | {"num_hidden_layers": 1})
    cache, other = empty_cache(model), empty_cache(model)
    fast = compiled(step_function(model))
    ids = torch.randint(3, 61, (2, 5))
    with torch.no_grad():
        # A prompt, and tokens one by one.
        for tokens in (ids, ids[:, :1], ids[:, 1:2]):
            want, got = step_function(model)(tokens, cache), fast(tokens, other)
            torch.testing.assert_close(got, want, atol=2e-5, rtol=1e-4)
    for mine, theirs in zip(other.layers, cache.layers, strict=True):
        torch.testing.assert_close(mine.keys, theirs.keys, atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(mine.values, theirs.values, atol=2e-5, rtol=1e-4)
        assert mine.keys[:, :, :7].abs().amin(-1).min() > 0
        assert mine.keys[:, :, 7:].abs().max() == 0


def _sources(node: torch.fx.Node, elements: dict[torch.fx.Node, None]) -> list[torch.fx.Node]:
    """The elements that a node reads, through views and positions."""
    found = []
    for operand in node.all_input_nodes:
        found += [operand] if operand in elements else _sources(operand, elements)
    return found
