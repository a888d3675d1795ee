"""An operator graph captured in one CUDA graph, with independent branches in parallel.

Operators run unchanged, each on the stream of its last operand if that is free, else on another
one. Every result is held until the end, so no stream gets memory that another one reads.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mirage_py.dynamo.networks.optimized_module import OptimizedModule
from mirage_py.errors import UnsupportedError
from mirage_py.runtime.timing.timing import captured
from mirage_py.ugraph.ir.convolution import ConvolutionTiles, plan_text, read_plan

_aten = torch.ops.aten
# What launches nothing.
_VIEWS = {
    operator.getitem,
    *(
        packet.default
        for packet in (
            _aten.permute, _aten.view, _aten.as_strided, _aten.as_strided_, _aten.unsqueeze,
            _aten.expand, _aten.t, _aten.detach, _aten.alias, _aten.split_with_sizes,
        )
    ),
    _aten.transpose.int, _aten.slice.Tensor, _aten.select.int, _aten.squeeze.dim,
    _aten.split.Tensor,
    _aten._unsafe_view.default,  # noqa: SLF001  the name of an operator
}  # fmt: skip
_STREAMS = 16
_WARM_UPS = 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operator runs: on which stream, and after which operators of other streams.

    ``follows``: the one before it on its stream is all that it waits for.
    """

    stream: int
    waits: tuple[Node, ...]
    follows: bool


def places_of(graph: torch.fx.Graph, most: int = _STREAMS) -> dict[Node, Place]:
    """The places of the operators that launch something. Stream 0 is the caller's.

    An operator follows the operand that it would wait for longest; where another one has taken
    that stream, it goes where everything before it is among what it needs, if there is room.
    """
    sources: dict[Node, frozenset[Node]] = {}
    needed: dict[Node, frozenset[Node]] = {}
    depth: dict[Node, int] = {}
    tails: list[Node] = []
    places: dict[Node, Place] = {}
    for node in graph.nodes:
        before = frozenset[Node]().union(
            *(sources.get(n, frozenset()) for n in node.all_input_nodes)
        )
        if node.op != "call_function" or node.target in _VIEWS:
            sources[node] = before
            continue
        sources[node] = frozenset((node,))
        needed[node] = before.union(*(needed[n] for n in before))
        depth[node] = 1 + max((depth[n] for n in before), default=0)
        stream = _stream_for(before, needed[node], tails, depth, most)
        here = {n for n in before if places[n].stream == stream}
        waits = tuple(sorted(before - here, key=lambda n: n.name))
        places[node] = Place(stream, waits, bool(here) and not waits)
        tails[stream : stream + 1] = [node]
    return places


def _stream_for(
    before: frozenset[Node],
    needed: frozenset[Node],
    tails: Sequence[Node],
    depth: Mapping[Node, int],
    most: int,
) -> int:
    ends = [n for n, tail in enumerate(tails) if tail in before]
    if not ends:
        ends = [n for n, tail in enumerate(tails) if tail in needed]
    if not ends and len(tails) < most:
        return len(tails)
    return max(
        ends or range(len(tails)), key=lambda n: depth[tails[n]] if ends else -depth[tails[n]]
    )


class BranchedGraph(torch.nn.Module):
    """Runs a graph with its branches on streams of their own, where the first tensor is on a GPU.

    Raises UnsupportedError for a graph that writes to what it is given.
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__()
        for node in module.graph.nodes:
            schema = getattr(node.target, "_schema", None)
            if schema is not None and schema.is_mutable and node.target not in _VIEWS:
                raise UnsupportedError("branches side by side", why=f"{node.target} writes")
        self.module = module
        self.places = places_of(module.graph)
        self._awaited = {n for place in self.places.values() for n in place.waits}
        self._streams: dict[int, list[torch.cuda.Stream]] = {}

    def forward(self, *values: Any) -> Any:
        """The results of the graph."""
        tensor = next(x for x in values if isinstance(x, torch.Tensor))
        if tensor.device.type != "cuda":
            return self.module(*values)
        with torch.cuda.device(tensor.device):
            return self._run(values, self._streams_on(tensor.device.index))

    def _streams_on(self, index: int) -> list[torch.cuda.Stream]:
        count = 1 + max((place.stream for place in self.places.values()), default=0)
        if index not in self._streams:
            new: Any = torch.cuda.Stream
            self._streams[index] = [new(index) for _ in range(count - 1)]
        return [torch.cuda.current_stream(index), *self._streams[index]]

    def _run(self, values: Sequence[Any], streams: Sequence[torch.cuda.Stream]) -> Any:
        first = streams[0]
        begin = first.record_event()
        given = iter(values)
        made: dict[Node, Any] = {}
        events: dict[Node, torch.cuda.Event] = {}
        begun = {0}
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                made[node] = next(given)
            elif node.op == "get_attr":
                made[node] = _attribute(self.module, str(node.target))
            elif node.op == "call_function":
                place = self.places.get(node)
                with contextlib.ExitStack() as stack:
                    if place is not None:
                        stream = streams[place.stream]
                        if place.stream not in begun:
                            stream.wait_event(begin)
                        begun.add(place.stream)
                        for other in place.waits:
                            stream.wait_event(events[other])
                        stack.enter_context(torch.cuda.stream(stream))
                    made[node] = _called(node, made, place)
                    if node in self._awaited:
                        events[node] = streams[self.places[node].stream].record_event()
            else:
                for number in sorted(begun - {0}):
                    first.wait_event(streams[number].record_event())
                return torch.fx.node.map_arg(node.args[0], made.__getitem__)
        raise AssertionError("a graph has an output")


def _called(node: Node, made: Mapping[Node, Any], place: Place | None) -> Any:
    given: Any = torch.fx.node.map_arg((node.args, node.kwargs), made.__getitem__)
    args, kwargs = given
    if place is not None and not place.follows and "fused_convolution" in str(node.target):
        # It may only start before its predecessor has ended where it has but one.
        spec, plan = read_plan(args[-1])
        if isinstance(plan, ConvolutionTiles):
            args = (*args[:-1], plan_text(spec, replace(plan, is_early=False)))
    target: Any = node.target
    return target(*args, **kwargs)


def _attribute(module: torch.nn.Module, name: str) -> Any:
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part)
    return value


def captured_branches(
    module: OptimizedModule, inputs: Sequence[torch.Tensor]
) -> Callable[..., Any]:
    """``module`` in a CUDA graph, for tensors that are like ``inputs``; results are those of the
    last call, in memory that the next one writes to.

    Raises UnsupportedError where it cannot be captured.
    """
    branches = BranchedGraph(module.graph_module)
    given = [x.clone() for x in inputs]
    results: list[Any] = []
    with torch.no_grad():
        # Libraries get their memory, and kernels are loaded.
        for _ in range(_WARM_UPS):
            module.through(branches, given, {})
        torch.cuda.synchronize()
        graph, error = captured(lambda: results.append(module.through(branches, given, {})))
    if graph is None:
        raise UnsupportedError("a CUDA graph of a network", why=str(error))

    def call(*new: torch.Tensor) -> Any:
        for old, x in zip(given, new, strict=True):
            if x.shape != old.shape or x.dtype != old.dtype:
                raise UnsupportedError("a call of a captured network", why="another shape or type")
            old.copy_(x)
        graph.replay()
        return results[0]

    return call
