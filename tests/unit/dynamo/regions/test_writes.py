"""Writes to inputs are set aside and put back; nothing else of a graph changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from mirage_py.dynamo.compile.compiler import GraphCompiler
from mirage_py.dynamo.compile.decompositions import decompositions
from mirage_py.dynamo.regions.writes import count_together, put_writes, take_writes
from mirage_py.dynamo.serve.options import backend_options
from mirage_py.targets import target

Traced = Callable[..., torch.fx.GraphModule]


def stepped(x: torch.Tensor, cache: torch.Tensor, count: torch.Tensor) -> Any:
    new = cache.index_fill(0, torch.zeros(1, dtype=torch.int64), 2.0) + x
    cache.copy_(new)
    count.copy_(count + 1)
    return new.relu(), None


def inputs() -> tuple[torch.Tensor, ...]:
    return torch.ones(3), torch.zeros(3), torch.zeros(())


def text(module: torch.fx.GraphModule) -> list[str]:
    return [node.format_node() or "" for node in module.graph.nodes]


def test_taken_and_put_back_the_graph_does_the_same(traced: Traced):
    module = traced(stepped, *inputs())
    before = text(module)
    writes = take_writes(module.graph)
    assert [w.place for w in writes] == [1, 2]
    assert "copy_" not in "".join(text(module))
    put_writes(module.graph, writes)
    module.graph.lint()
    module.recompile()
    # The writes have gone to the end.
    assert sorted(before)[:3] == sorted(text(module))[:3]
    x, cache, count = inputs()
    result, nothing = module(x, cache, count)
    assert nothing is None
    torch.testing.assert_close(cache, torch.tensor([3.0, 1.0, 1.0]))
    torch.testing.assert_close(result, cache)
    assert count.item() == 1


def test_what_was_written_is_a_result_meanwhile(traced: Traced):
    module = traced(stepped, *inputs())
    count = len(module.graph.output_node().args[0])  # type: ignore[arg-type]
    writes = take_writes(module.graph)
    assert len(module.graph.output_node().args[0]) == count + len(writes)  # type: ignore[arg-type]


def counted(x: torch.Tensor, *counts: torch.Tensor) -> Any:
    result = x + sum(counts)
    for count in counts[:-1]:
        count.copy_(count + 1)
    counts[-1].copy_(counts[-1] + 2)
    return result, None


def test_inputs_that_count_are_counted_together(traced: Traced):
    given = [torch.ones(3), *(torch.tensor(n) for n in range(4))]
    module = traced(counted, *given)
    writes = take_writes(module.graph)
    count_together(module.graph, writes)
    put_writes(module.graph, writes)
    module.graph.lint()
    module.recompile()
    (together,) = (n for n in module.graph.nodes if "_foreach_add" in str(n.target))
    assert len(together.args[0]) == 3  # type: ignore[arg-type]
    module(*given)
    assert [int(n) for n in given[1:]] == [1, 2, 3, 5]


def test_a_graph_that_writes_to_nothing_stays_as_it_is(traced: Traced):
    module = traced(lambda x: x + 1, torch.ones(3))
    before = text(module)
    assert take_writes(module.graph) == ()
    put_writes(module.graph, ())
    assert text(module) == before


def test_a_write_whose_result_is_read_stays(traced: Traced):
    module = traced(lambda x, cache: cache.copy_(x) + 1, torch.ones(3), torch.zeros(3))
    assert take_writes(module.graph) == ()


@pytest.mark.parametrize(
    "indices",
    [
        (torch.arange(2), None, torch.tensor([3, 1])),
        (torch.tensor([1]), torch.tensor([0])),
        (None, torch.tensor([2])),
        (torch.tensor([[0], [1]]), torch.tensor([0, 2])),
        (torch.tensor([True, False]),),
    ],
)
def test_values_get_the_axes_that_are_missing_at_the_indices(traced: Traced, indices: Any):
    whole = torch.randn(2, 4, 5, 3)
    value = torch.randn(whole[tuple(slice(None) if i is None else i for i in indices)].shape[-2:])

    def put(whole: torch.Tensor, value: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
        rest = iter(given)
        places = [None if i is None else next(rest) for i in indices]
        return torch.ops.aten.index_put.default(whole, places, value)

    arguments = (whole, value, *(i for i in indices if i is not None))
    module = traced(put, *arguments)
    take_writes(module.graph)
    module.recompile()
    found = module(*arguments)
    found = found[0] if isinstance(found, tuple) else found
    torch.testing.assert_close(found, put(*arguments))


def packed(
    x: torch.Tensor, weight: torch.Tensor, angles: torch.Tensor, keys: torch.Tensor,
    values: torch.Tensor, count: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """Queries, keys and values of a packed product; positions in six of eight columns of a head."""
    parts = (x @ weight.t()).split([32, 16, 16], dim=-1)
    q, k, v = (t.view(1, 3, -1, 8).transpose(1, 2) for t in parts)
    cos, sin = angles.cos(), angles.sin()

    def turned(t: torch.Tensor) -> torch.Tensor:
        whole = t * torch.rsqrt(t.square().mean(-1, keepdim=True) + 1e-6)
        first, rest = whole[..., :6], whole[..., 6:]
        halves = torch.cat((-first[..., 3:], first[..., :3]), -1)
        return torch.cat((first * cos + halves * sin, rest), -1)

    place = torch.arange(3) + count
    count.add_(3)
    keys[:, :, place] = turned(k)
    values[:, :, 5:8] = v
    return torch.nn.functional.scaled_dot_product_attention(
        turned(q), keys, values, enable_gqa=True
    )


def in_place(lines: list[str]) -> Callable[..., Any]:
    """A backend whose graphs write to their inputs, as Inductor's do; what it logs."""
    from torch._dynamo.backends.common import aot_autograd

    options = backend_options(None, {"rest": "eager", "on_cpu": "reference", "target": "h200"})
    compiler = GraphCompiler(options, target("h200"))
    compiler.lines = lines
    return aot_autograd(
        fw_compiler=lambda graph, inputs: compiler.compile("inference", graph, inputs),
        decompositions=decompositions(),
        keep_inference_input_mutations=True,
    )


def test_what_a_product_outside_made_is_written_by_one_region() -> None:
    given = [torch.randn(3, 16), torch.randn(64, 16), torch.randn(3, 6)]
    caches = [torch.randn(1, 2, 12, 8) for _ in range(2)]
    others = [c.clone() for c in caches]
    want = packed(*given, *caches, torch.tensor(5))
    lines: list[str] = []
    with torch.no_grad():
        fast = torch.compile(packed, backend=in_place(lines))
        got = fast(*given, *others, torch.tensor(5))
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(others, caches)
    (written,) = (line for line in lines if "index_put" in line)
    assert "slice_scatter" in written
    assert " mm " not in written
