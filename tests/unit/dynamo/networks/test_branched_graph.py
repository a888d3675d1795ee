"""Branches of a graph on streams: side by side, and nothing before what it needs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from mirage_py.dynamo.networks import branched_graph
from mirage_py.dynamo.networks.branched_graph import BranchedGraph, places_of
from mirage_py.errors import UnsupportedError

X = torch.linspace(-1, 1, 16).reshape(4, 4)


def block(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.sin()
    one, two = x.cos(), x.t().exp().tanh()
    pieces = (one + two).split([1, 3], 1)
    joined = torch.cat([pieces[0].relu(), pieces[1].abs().neg(), x.sigmoid()], 1)
    return joined.sqrt(), two.sum()


class Stream:
    """A stream that knows which operators are done before its next one."""

    def __init__(self) -> None:
        self.done: set[Any] = set()

    def record_event(self) -> set[Any]:
        return set(self.done)

    def wait_event(self, event: set[Any]) -> None:
        self.done |= event


def test_branches_have_streams_of_their_own() -> None:
    places = places_of(make_fx(block)(X).graph)
    streams = {node.name: place.stream for node, place in places.items()}
    assert streams["sin"] == streams["cos"] == 0
    assert len({streams[n] for n in ("cos", "exp", "sigmoid")}) == 3
    assert streams["tanh"] == streams["exp"]
    assert all(n not in streams for n in ("t", "getitem", "getitem_1"))
    assert {place.stream for place in places_of(make_fx(block)(X).graph, 1).values()} == {0}


@pytest.mark.parametrize("most", [1, 2, 3, 16])
def test_nothing_runs_before_what_it_needs(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = make_fx(block)(X)
    monkeypatch.setattr(branched_graph, "_STREAMS", most)
    graph = BranchedGraph(module)
    graph.places = places_of(module.graph, most)
    graph._awaited = {n for place in graph.places.values() for n in place.waits}
    current: list[Stream] = []

    @contextlib.contextmanager
    def on(stream: Stream) -> Iterator[None]:
        current.append(stream)
        yield
        current.pop()

    plain = branched_graph._called

    def called(node: Any, made: Any, place: Any) -> Any:
        if place is not None:
            needed = set(_kernels(node, graph.places))
            assert needed <= current[-1].done, node.name
            current[-1].done.add(node)
        return plain(node, made, place)

    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(branched_graph, "_called", called)
    streams = [Stream() for _ in range(most)]
    for got, want in zip(graph._run([X], streams), block(X), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)
    # Whoever comes after the graph on its stream comes after all of it.
    assert set(graph.places) <= streams[0].done


def _kernels(node: Any, places: Any) -> Iterator[Any]:
    for n in node.all_input_nodes:
        if n in places:
            yield n
        else:
            yield from _kernels(n, places)


def test_a_graph_that_writes_is_refused() -> None:
    module = make_fx(lambda x: x.clone().add_(1))(X)
    with pytest.raises(UnsupportedError, match="writes"):
        BranchedGraph(module)


def test_without_a_gpu_it_runs_as_it_is() -> None:
    graph = BranchedGraph(make_fx(block)(X))
    torch.testing.assert_close(graph(X), block(X), equal_nan=True)
