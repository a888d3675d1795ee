"""Weights of later kernels that the kernels of a region ask the L2 for."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import several_kernels
import torch
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx

from mirage_py.dynamo.compile import later_weights
from mirage_py.dynamo.compile.compiler import GraphCompiler
from mirage_py.dynamo.serve.region_call import RegionCall
from mirage_py.dynamo.serve.region_op import inputs_of_call, region_operator
from mirage_py.runtime.launch.prefetch import MOST_SPANS, PrefetchArgument, Span, span_of

MB = 1 << 20
LINK = several_kernels.plan("residual_gated")


def asking(blocks_mb: float, *, at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later_weights, "all_at_once", lambda _: at_once)
    monkeypatch.setattr(later_weights, "asking_bytes", lambda _: blocks_mb * MB)


def model(*sizes_mb: int) -> tuple[Graph, list[Any]]:
    """Products in turn: a call of a region by weights of so many MB, each of a content of its own;
    then a product that is left outside.
    """
    graph, regions = Graph(), []
    x, *weights = (
        graph.placeholder(name) for name in ("x", *(f"w{n}" for n in range(len(sizes_mb))))
    )
    for weight, mb in zip(weights, sizes_mb, strict=True):
        weight.meta["val"] = torch.empty(128 * mb, 4096, device="meta", dtype=torch.bfloat16)
    module = make_fx(lambda a, b: (a @ b.t(),))(torch.ones(1, 4), torch.ones(4, 4))
    for number, weight in enumerate(weights[:-1]):
        regions.append(SimpleNamespace(key=f"key{number}", module=module))
        graph.call_function(region_operator(), ([x, weight], [], "tt", f"key{number}"))
    turned = graph.call_function(torch.ops.aten.t.default, (weights[-1],))
    graph.output(graph.call_function(torch.ops.aten.mm.default, (x, turned)))
    return graph, regions


def asked(graph: Graph) -> list[list[tuple[str, tuple[int, ...]]]]:
    """Of each call the tensors and the rows and bytes of each."""
    found = []
    for node in graph.find_nodes(op="call_function", target=region_operator()):
        tensors, sizes, kinds, _ = node.args
        later = kinds.partition("|")[2].count("t")
        assert [n.name for n in inputs_of_call(node)] == [n.name for n in tensors[:2]]
        edges = [tuple(sizes[4 * n : 4 * n + 4]) for n in range(later)]
        names = [n.name for n in tensors[len(tensors) - later :]]
        found.append(list(zip(names, edges, strict=True)))
    return found


@pytest.mark.parametrize("at_once", [True, False])
def test_each_region_asks_for_a_share_more(at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asking(100, at_once=at_once, monkeypatch=monkeypatch)
    graph, regions = model(1, 4, 64, 500)
    later_weights.ask_for_later_weights(graph, regions, lambda _: LINK)
    first, second, third = asked(graph)
    whole = ("w1", (0, 512, 0, 8192))
    if at_once:  # all rows from their first columns on
        assert first == [whole, ("w2", (0, 8192, 0, 512))]
        assert second == [("w2", (0, 8192, 512, 1536))]
    else:
        assert first == [whole, ("w2", (0, 512, 0, 8192))]
        assert second == [("w2", (512, 1536, 0, 8192))]
    # What is left outside is read row by row.
    assert third == [("w3", (0, 1024, 0, 8192))]
    graph.lint()


def test_what_is_too_much_for_few_blocks_the_region_in_front_asks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = replace(LINK, backend="triton")
    asking(100, at_once=False, monkeypatch=monkeypatch)
    monkeypatch.setattr(later_weights, "asking_bytes", lambda p: 0 if p is small else 100 * MB)
    graph, regions = model(1, 4, 64, 500)
    links = {"key0": LINK, "key1": small, "key2": None}
    later_weights.ask_for_later_weights(graph, regions, lambda key: links[key])
    first, second, third = asked(graph)
    assert first == [("w1", (0, 512, 0, 8192)), ("w2", (0, 1536, 0, 8192))]
    assert second == third == []


def test_no_more_lies_ahead_than_the_l2_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    asking(100, at_once=False, monkeypatch=monkeypatch)
    graph, regions = model(1, 1, 1, 1, 1, 1, 1, 1, 64, 500)
    later_weights.ask_for_later_weights(graph, regions, lambda _: LINK)
    found = asked(graph)
    assert max(map(len, found)) == MOST_SPANS
    rows = sum(edges[1] - edges[0] for spans in found for name, edges in spans if name == "w8")
    assert rows == 32 * 128
    assert found[-1] == [("w9", (0, 1024, 0, 8192))]


def test_spans_are_what_the_driver_finds() -> None:
    matrix = torch.zeros(64, 256, dtype=torch.bfloat16)
    span = span_of(matrix, 8, 24, 128, 512)
    assert span == Span(matrix.data_ptr() + 8 * 512 + 128, 16, 512, 384)
    argument = PrefetchArgument()
    argument.say([span] * (MOST_SPANS + 2))
    said = argument._spans
    assert list(said.rows) == [16] * MOST_SPANS
    argument.say([])
    assert list(said.rows) == [0] * MOST_SPANS
    assert argument.address % 8 == 0


def test_what_is_no_matrix_of_whole_rows_is_no_weight() -> None:
    graph = Graph()
    node: Node = graph.placeholder("w")
    for shape, stride in (
        ((512, 1024), (1, 512)),
        ((2, 512, 1024), (524288, 1024, 1)),
        ((4, 4), (4, 1)),
    ):
        node.meta["val"] = torch.empty_strided(shape, stride, device="meta")
        assert not later_weights._is_weight(node)
    node.meta["val"] = torch.empty(512, 1024, device="meta")
    assert later_weights._is_weight(node)


def test_a_call_hands_them_to_the_region(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asking(100, at_once=False, monkeypatch=monkeypatch)
    monkeypatch.setattr(GraphCompiler, "_link", lambda *_: LINK)
    seen: list[list[Span]] = []
    served = RegionCall._served

    def watched(call: RegionCall, inputs: Any, later: Any = ()) -> Any:
        seen.append(list(later))
        return served(call, inputs, later)

    monkeypatch.setattr(RegionCall, "_served", watched)
    first, second = (torch.randn(512, 512) / 16 for _ in range(2))
    at = torch.tensor([1])

    def step(x: torch.Tensor, cache: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Any:
        y = torch.nn.functional.silu(torch.nn.functional.rms_norm(x, (512,)) @ a.t())
        cache.index_copy_(0, at, y)
        return torch.nn.functional.gelu(torch.sin(y).cumsum(0) @ b.t()) + y

    x, cache = torch.randn(1, 512), torch.zeros(4, 512)
    wanted = step(x, other := cache.clone(), first, second)
    with torch.no_grad():
        found = compiled(step, chain="on", whole_graph="trust")(x, cache, first, second)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(cache, other, rtol=1e-4, atol=1e-5)
    assert [Span(second.data_ptr(), 512, 2048, 2048)] in seen
