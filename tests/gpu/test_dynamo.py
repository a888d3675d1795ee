"""The backend of torch.compile with kernels: results, gradients, CUDA graphs, a real model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dynamo_models import MODELS, batch

from benchmarks.whole_models.step import cache_name

pytestmark = [
    pytest.mark.gpu,
    # Inductor's, once a process, where angles are multiplied in float32.
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning"),
]

OPTIONS: dict[str, Any] = {"effort": "quick", "budget": 6, "rest": "inductor"}


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def compiled(fn: Any, **options: Any) -> Any:
    from mirage_py.dynamo.backend import mirage_py

    return torch.compile(fn, backend=mirage_py, options=OPTIONS | options)


def block(x: torch.Tensor, g: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.silu(F.rms_norm(x, (x.shape[-1],), g, 1e-6) @ w)


def inputs(rows: int = 16) -> tuple[torch.Tensor, ...]:
    make: Any = {"dtype": torch.bfloat16, "device": "cuda"}
    return (
        torch.randn(rows, 1024, **make),
        torch.randn(1024, **make),
        torch.randn(1024, 1024, **make) / 32,
    )


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got.float(), want.float(), atol=0.03, rtol=0.03)


def step(
    x: torch.Tensor, g: torch.Tensor, w: torch.Tensor, cache: torch.Tensor, at: torch.Tensor
) -> torch.Tensor:
    """Writes the next row of a cache."""
    y = block(x, g, w)
    cache.index_copy_(0, at, y[:1])
    at.add_(1)
    return y + cache.sum(0)


def takes_four_steps(fast: Any) -> None:
    """``step``, compiled, leaves results and a cache for four rows as eager does."""
    caches = [torch.zeros(4, 1024, dtype=torch.bfloat16, device="cuda") for _ in range(2)]
    places = [torch.zeros(1, dtype=torch.int64, device="cuda") for _ in range(2)]
    for kept in (caches[0], places[0]):
        torch._dynamo.mark_static_address(kept)
    with torch.no_grad():
        for _ in range(4):
            arguments = inputs()
            torch.compiler.cudagraph_mark_step_begin()
            got = fast(*arguments, caches[0], places[0]).clone()
            close(got, step(*arguments, caches[1], places[1]))
            close(caches[0], caches[1])
    assert places[0].item() == 4


def test_a_region_is_served_by_a_kernel(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", logger="mirage_py.dynamo")
    arguments = inputs()
    with torch.no_grad():
        close(compiled(block)(*arguments), block(*arguments))
    assert any("region" in record.getMessage() for record in caplog.records)


def test_gradients():
    mine = [x.requires_grad_() for x in inputs()]
    theirs = [x.detach().float().requires_grad_() for x in mine]
    compiled(block)(*mine).float().sum().backward()
    block(*theirs).sum().backward()
    for x, y in zip(mine, theirs, strict=True):
        error = (x.grad.float() - y.grad).abs().max() / y.grad.abs().max()
        assert error < 0.02


# torch's trees begin with a graph of nothing, and expect the warning.
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
@pytest.mark.parametrize("rest", ["inductor", "eager"])
def test_replayed_from_a_cuda_graph(rest: str):
    fast = compiled(block, cuda_graphs=True, rest=rest)
    with torch.no_grad():
        for _ in range(4):
            arguments = inputs()
            torch.compiler.cudagraph_mark_step_begin()
            close(fast(*arguments).clone(), block(*arguments))


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
def test_a_cache_is_written_to_inside_a_cuda_graph():
    fast = compiled(step, cuda_graphs=True, effort="none")
    takes_four_steps(fast)
    assert torch._dynamo.utils.counters["inductor"]["cudagraph_skips"] == 0


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
@pytest.mark.parametrize("cuda_graphs", [True, False])
@pytest.mark.parametrize("winner", ["ours", "torch"])
def test_a_whole_graph_is_benchmarked(
    winner: str,
    cuda_graphs: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    """Whoever wins, the cache has room for one more step, and gets it."""
    from mirage_py.dynamo.compile import compiler
    from mirage_py.dynamo.serve import servers
    from mirage_py.dynamo.whole_graph import benchmark

    seen: dict[str, float] = {}

    def clock(candidates: Any, put_back: Any) -> dict[str, float]:
        assert all(c.is_captured is cuda_graphs for c in candidates.values())
        seen.update(benchmark.times_on_gpu(candidates, put_back))
        return {**seen, winner: 0.1}

    # Served for certain, and at once.
    monkeypatch.setattr(compiler, "server_for", lambda *_: servers.reference)
    monkeypatch.setattr(benchmark, "clock_for", lambda _: clock)
    caplog.set_level("INFO", logger="mirage_py.dynamo")
    options = {"whole_graph": "race", "cache": False}
    fast = compiled(step, cuda_graphs=cuda_graphs, **options)
    takes_four_steps(fast)
    assert set(seen) == {"ours", "torch"}
    assert all(1.0 < time_us < 1e5 for time_us in seen.values())
    (line,) = [r.getMessage() for r in caplog.records if "whole graph:" in r.getMessage()]
    assert ("regions are used" in line) is (winner == "ours")


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
def test_a_race_keeps_no_memory(monkeypatch: pytest.MonkeyPatch):
    from mirage_py.dynamo.compile import compiler
    from mirage_py.dynamo.serve import servers

    monkeypatch.setattr(compiler, "server_for", lambda *_: servers.reference)
    arguments = inputs(65536)  # 128 MiB
    reserved = []
    with torch.no_grad():
        for whole_graph in ("trust", "race"):
            torch._dynamo.reset()
            options = {"whole_graph": whole_graph, "cache": False}
            fast = compiled(block, cuda_graphs=True, **options)
            fast(*arguments)
            del fast
            torch._dynamo.reset()
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            reserved.append(torch.cuda.memory_reserved())
    # cuBLAS keeps what it works in for each stream, that of captures among them.
    assert reserved[1] <= reserved[0] + (64 << 20)


def test_a_graph_of_the_users_own():
    arguments = inputs()
    fast = compiled(block)
    with torch.no_grad():
        fast(*arguments)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = fast(*arguments)
        arguments[0].copy_(torch.randn_like(arguments[0]))
        graph.replay()
        close(result, block(*arguments))


def test_sizes_that_change():
    fast = compiled(block)
    with torch.no_grad():
        for rows in (16, 24, 40):
            arguments = inputs(rows)
            close(fast(*arguments), block(*arguments))


def test_contexts_of_a_cache_take_one_search():
    from mirage_py.dynamo.serve.region_op import living_calls

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax((q @ k.transpose(1, 2)).float() / 8, -1).to(v.dtype) @ v

    make: Any = {"dtype": torch.bfloat16, "device": "cuda"}
    others = {*living_calls()}  # of earlier tests in this process
    fast = compiled(attend, whole_graph="trust")
    with torch.no_grad():
        for tokens in (1, 2, 3, 17, 64, 101, 303, 512):
            q, k = torch.randn(32, 1, 64, **make), torch.randn(32, tokens, 64, **make)
            close(fast(q, k, k + 1), attend(q, k, k + 1))
    tables = [c.dispatch_table() for c in living_calls() if c not in others]
    assert [t.splitlines()[-1] for t in tables if "searches" in t] == ["searches: 1 of at most 8"]


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_a_model_in_bfloat16(name: str):
    pytest.importorskip("transformers")
    model = MODELS[name]().to("cuda", torch.bfloat16).eval()
    given = {k: v.cuda() for k, v in batch(name).items() if k != "labels"}
    with torch.no_grad():
        close(compiled(model, effort="none")(**given).logits, model(**given).logits)


def test_a_decode_step_rotates_in_the_kernel_of_its_products():
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

    config = LlamaConfig(
        hidden_size=512, intermediate_size=1024, num_hidden_layers=1, num_attention_heads=16,
        num_key_value_heads=8, head_dim=64, vocab_size=512,
    )  # fmt: skip
    with torch.device("cuda"):
        model: Any = LlamaForCausalLM(config).to(torch.bfloat16).eval().requires_grad_(False)
        ids = torch.randint(3, 512, (1, 9))
    made = [StaticCache(config=config, max_cache_len=128) for _ in range(2)]

    name = cache_name()

    def token_step(ids: torch.Tensor, cache: Any) -> torch.Tensor:
        found: torch.Tensor = model(input_ids=ids, use_cache=True, **{name: cache}).logits
        return found

    fast = compiled(token_step)
    with torch.no_grad():
        for cache in made:
            token_step(ids, cache)
        for n in range(3):
            close(fast(ids[:, n : n + 1], made[0]), token_step(ids[:, n : n + 1], made[1]))
    for mine, theirs in zip(made[0].layers, made[1].layers, strict=True):
        close(mine.keys, theirs.keys)
        close(mine.values, theirs.values)
