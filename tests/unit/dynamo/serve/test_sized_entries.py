"""Regions whose sizes change: one search for many sizes, and the values of eager at each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.whole_models.interpreted_regions import interpreted
from mirage_py.dynamo.compile.compiler import GraphCompiler
from mirage_py.dynamo.compile.eager_graphs import compiled_with_eager
from mirage_py.dynamo.regions.region_program import RegionProgram
from mirage_py.dynamo.serve import region_call
from mirage_py.dynamo.serve.graph_target import graph_target
from mirage_py.dynamo.serve.options import backend_options
from mirage_py.dynamo.serve.region_call import RegionCall
from mirage_py.dynamo.serve.servers import reference
from mirage_py.dynamo.serve.service import Service
from mirage_py.errors import MirageWarning, UnsupportedError

OPTIONS = {"rest": "eager", "on_cpu": "reference", "target": "h200"}
SAMPLE = (1, 2, 3, 4, 15, 16, 17, 100, 303)


class Compiled:
    """Functions compiled with the backend, and what was asked of its server."""

    def __init__(self) -> None:
        self.asked: list[RegionProgram] = []
        self.compilers: list[GraphCompiler] = []
        self.server: Callable[..., Service] = reference

    def __call__(self, fn: Any, dynamic: bool | None = None, **options: Any) -> Any:
        chosen = backend_options(None, OPTIONS | options)

        def serve(program: RegionProgram, own: Any) -> Service:
            self.asked.append(program)
            return self.server(program, own)

        def backend(module: Any, inputs: Any) -> Any:
            self.compilers.append(GraphCompiler(chosen, graph_target(chosen.target), serve))
            return compiled_with_eager(self.compilers[-1], module, inputs)

        return torch.compile(fn, backend=backend, dynamic=dynamic)

    @property
    def graphs(self) -> int:
        """How many graphs dynamo made."""
        return len(self.compilers)

    @property
    def sized(self) -> list[RegionCall]:
        """The regions with symbolic sizes, of every graph."""
        calls = [call for c in self.compilers for call in c.calls.values()]
        return [c for c in calls if "searches" in c.dispatch_table()]

    @property
    def open(self) -> list[RegionProgram]:
        """The programs of many sizes that the server was asked for."""
        return [p for p in self.asked if p.dims]


@pytest.fixture
def compiled() -> Compiled:
    return Compiled()


class Layer(nn.Module):
    """Attention over a cache that grows, and an MLP."""

    def __init__(self, size: int = 32, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(size, 3 * size, bias=False)
        self.out = nn.Linear(size, size, bias=False)
        self.up = nn.Linear(size, 2 * size, bias=False)
        self.down = nn.Linear(2 * size, size, bias=False)

    def forward(self, x: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        batch, tokens, size = x.shape
        parts = self.qkv(F.rms_norm(x, (size,))).view(batch, tokens, 3, self.heads, -1)
        q, new_k, new_v = parts.permute(2, 0, 3, 1, 4)
        k, v = torch.cat([k, new_k], 2), torch.cat([v, new_v], 2)
        read = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(read.transpose(1, 2).reshape(batch, tokens, size))
        return x + self.down(F.silu(self.up(F.rms_norm(x, (size,))))), k, v


def cache(batch: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch, 2, tokens, 16), torch.randn(batch, 2, tokens, 16)


@torch.no_grad()
def test_303_contexts_take_one_search_and_no_fallback(compiled: Compiled, caplog: Any):
    """torch.compile as it is: a static graph for one token, and one for every other number."""
    caplog.set_level(logging.INFO, logger="mirage_py.dynamo")
    layer = Layer()
    fast = compiled(layer)
    k, v = cache(1, 1)
    for tokens in range(1, 304):
        x = torch.randn(1, 1, 32)
        got = fast(x, k, v)
        if tokens in SAMPLE:
            want = layer(x, k, v)
            for a, b in zip(got, want, strict=True):
                torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
        _, k, v = got
    assert compiled.graphs == 2
    (region,) = compiled.sized
    assert region.searches == 1
    assert len(compiled.open) == 1
    table = region.dispatch_table()
    assert "2 <= n0 <= 512, n1 == n0" in table
    assert table.splitlines()[1].split()[-2:] == ["kernel", "302"]
    assert table.splitlines()[-1] == "searches: 1 of at most 8"
    # Layers that know no context are one content in both graphs.
    contents = {key for c in compiled.compilers for key in c.calls}
    assert len(contents) == len(compiled.compilers[0].calls) + 1


@torch.no_grad()
def test_batches_from_1_to_17(compiled: Compiled):
    layer = Layer()
    fast = compiled(layer)
    for batch in range(1, 18):
        x, (k, v) = torch.randn(batch, 1, 32), cache(batch, 5)
        for a, b in zip(fast(x, k, v), layer(x, k, v), strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    assert compiled.graphs == 2
    # 2 to 16 rows, and 17 to 64.
    assert compiled.sized
    assert {r.searches for r in compiled.sized} == {2}


@torch.no_grad()
def test_batch_and_context_change_together(compiled: Compiled):
    layer = Layer()
    fast = compiled(layer, dynamic=True)
    for batch, tokens in ((3, 5), (4, 7), (9, 300), (16, 2), (3, 5), (40, 33)):
        x, (k, v) = torch.randn(batch, 1, 32), cache(batch, tokens)
        for a, b in zip(fast(x, k, v), layer(x, k, v), strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    assert compiled.graphs == 1
    assert {r.searches for r in compiled.sized} == {2}
    assert any(len(p.dims) == 2 for p in compiled.open)


@torch.no_grad()
def test_batch_and_length_are_one_number_of_rows(compiled: Compiled):
    """A linear layer multiplies the rows of all sequences."""
    up, down = nn.Linear(16, 32, bias=False), nn.Linear(32, 16, bias=False)

    def mlp(x: torch.Tensor) -> torch.Tensor:
        return x + down(F.silu(up(F.rms_norm(x, (16,)))))

    fast = compiled(mlp, dynamic=True)
    for batch, tokens in ((3, 7), (2, 15), (6, 10), (60, 7)):
        x = torch.randn(batch, tokens, 16)
        torch.testing.assert_close(fast(x), mlp(x), atol=1e-5, rtol=1e-4)
    assert compiled.sized
    # 17 to 64 rows, and 65 to 512.
    assert {r.searches for r in compiled.sized} == {2}
    assert {len(p.dims) for p in compiled.open} == {1}


def by_position(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    at = torch.arange(x.shape[1]) * 0.5
    return F.silu((x + at[:, None]) @ w)


def over_length(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.silu(torch.softmax(x, 1) @ w)


def turned(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    rows = x.shape[1], x.shape[0], x.shape[2]
    return F.silu(x.view(rows).transpose(0, 1) @ w)


@pytest.mark.parametrize("fn", [by_position, over_length, turned])
@torch.no_grad()
def test_rows_that_are_not_all_treated_alike_stay_apart(compiled: Compiled, fn: Any):
    fast = compiled(fn, dynamic=True)
    w = torch.randn(16, 16)
    for batch, tokens in ((3, 7), (2, 15)):
        x = torch.randn(batch, tokens, 16)
        torch.testing.assert_close(fast(x, w), fn(x, w), atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_an_axis_that_becomes_1_or_0(compiled: Compiled):
    """Another graph of torch's for each, which is right."""
    fast = compiled(lambda x, w: F.silu(x) @ w + 1, dynamic=True)
    w = torch.randn(8, 8)
    for rows in (5, 1, 0, 6, 1):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(fast(x, w), F.silu(x) @ w + 1)
    assert compiled.graphs == 3


@torch.no_grad()
def test_a_part_that_a_size_cuts_off_is_an_input(compiled: Compiled):
    def attended(q: torch.Tensor, k: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        held = k[:, : n.shape[0]]
        return torch.softmax(q @ held.transpose(1, 2), -1) @ held

    fast = compiled(attended, dynamic=True)
    q, k = torch.randn(2, 1, 16), torch.randn(2, 64, 16)
    for tokens in (3, 17, 50, 64):
        n = torch.empty(tokens)
        torch.testing.assert_close(fast(q, k, n), attended(q, k, n))
    assert {r.searches for r in compiled.sized} == {1}


@torch.no_grad()
def test_a_size_that_is_a_number_in_the_formula_stays_outside(compiled: Compiled):
    """How many tokens came before is an angle: a kernel would hold for one of them."""

    def rotated(x: torch.Tensor, w: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
        at = torch.arange(1) + past.shape[0]
        return F.silu(x @ w) * torch.cos(at * 0.25)

    fast = compiled(rotated, dynamic=True)
    x, w = torch.randn(1, 16), torch.randn(16, 16)
    for tokens in (3, 17, 50):
        past = torch.empty(tokens)
        torch.testing.assert_close(fast(x, w, past), rotated(x, w, past))
    assert len(compiled.asked) == len({c for g in compiled.compilers for c in g.calls})


@torch.no_grad()
def test_calls_of_one_layout_are_not_described(compiled: Compiled, monkeypatch: Any):
    """Python takes longer for it than for all else of a call."""
    fast = compiled(lambda x: F.silu(x) + 1, dynamic=False)
    x = torch.randn(5, 8)
    fast(x)
    monkeypatch.setattr(region_call, "_described", None)
    torch.testing.assert_close(fast(x), F.silu(x) + 1)


@torch.no_grad()
def test_beyond_max_sizes_another_bucket_serves(compiled: Compiled):
    fast = compiled(lambda x: F.silu(x) + 1, dynamic=True, max_sizes=1)
    for rows in (5, 17, 400, 9):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(fast(x), F.silu(x) + 1)
    (region,) = compiled.sized
    assert region.searches == 1
    rows = region.dispatch_table().splitlines()
    assert [r.split()[-2] for r in rows[1:-1]] == ["kernel"] * 3
    assert rows[-1] == "searches: 1 of at most 1"


@torch.no_grad()
def test_beyond_max_sizes_torch_serves_what_the_kernel_does_not_reach(compiled: Compiled):
    def small(program: RegionProgram, own: Any) -> Service:
        from mirage_py.shapes.predicate import SizePredicate

        found = reference(program, own)
        found.kernel.validity = SizePredicate.ranges({program.dims[0]: (1, 12)})
        return found

    compiled.server = small
    fast = compiled(lambda x: F.silu(x) + 1, dynamic=True, max_sizes=1)
    inputs = [torch.randn(rows) for rows in (5, 12, 13, 400)]
    with pytest.warns(MirageWarning, match="more than 1 sets of sizes"):
        results = [fast(x) for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        torch.testing.assert_close(result, F.silu(x) + 1)
    (region,) = compiled.sized
    assert "2 <= n0 <= 12" in region.dispatch_table()
    assert region.dispatch_table().count("(max_sizes)") == 2


@torch.no_grad()
def test_what_has_no_kernel_for_many_sizes_stays_in_the_graph(compiled: Compiled):
    def no_plan(program: RegionProgram, own: Any) -> Service:
        if program.dims:
            raise UnsupportedError("no plan that was found can leave its sizes open")
        return reference(program, own)

    compiled.server = no_plan
    fast = compiled(lambda x: F.silu(x) + 1, dynamic=True)
    for rows in (5, 300):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(fast(x), F.silu(x) + 1)
    (region,) = compiled.sized
    assert region.searches == 1
    assert "no plan that was found" in region.dispatch_table()


@torch.no_grad()
def test_one_kernel_for_all_where_that_is_asked_for(compiled: Compiled):
    fast = compiled(lambda x: F.silu(x) + 1, dynamic=True, shapes="symbolic")
    for rows in (5, 17, 4000):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(fast(x), F.silu(x) + 1)
    (region,) = compiled.sized
    assert region.searches == 1
    assert [p.program.inputs[0].shape[0] for p in compiled.open] == [5]


@torch.no_grad()
def test_buckets_end_where_edges_say(compiled: Compiled):
    fast = compiled(lambda x: F.silu(x) + 1, dynamic=True, edges=(100, 200))
    for rows in (5, 17, 99, 101):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(fast(x), F.silu(x) + 1)
    assert [p.program.inputs[0].shape[0] for p in compiled.open] == [100, 200]


@torch.no_grad()
def test_a_plan_for_many_contexts_is_right_at_each(compiled: Compiled):
    """Kernels of a search, in Triton's interpreter."""
    compiled.server = lambda program, _: interpreted(program, 2.0)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v)

    fast = compiled(attend)
    q = torch.randn(1, 2, 1, 16)
    for tokens in (5, 2, 33, 303):
        k, v = cache(1, tokens)
        torch._dynamo.mark_dynamic(k, 2)
        torch._dynamo.mark_dynamic(v, 2)
        torch.testing.assert_close(fast(q, k, v), attend(q, k, v), atol=1e-4, rtol=1e-3)
    (region,) = compiled.sized
    assert "2 <= n0 <= 512, n1 == n0  mirage_py: 1 kernels, interpreted" in region.dispatch_table()
    assert region.searches == 1
