"""From a region's graph to a program, and from what the program writes to what torch expects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from mirage_py.dynamo.regions.region_graph import region_graph
from mirage_py.dynamo.regions.region_program import (
    RegionProgram,
    RegionResult,
    TensorLayout,
    region_program,
)
from mirage_py.dynamo.regions.regions import cut
from mirage_py.dynamo.serve.region_call import RegionCall, layouts_of
from mirage_py.dynamo.serve.servers import reference
from mirage_py.dynamo.serve.service import Service
from mirage_py.errors import MirageWarning, UnsupportedError
from mirage_py.reasons import Code, Reason, Served, Server
from mirage_py.targets import target

Trace = Callable[..., torch.fx.GraphModule]


def tupled(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """With a tuple of results and inputs in0, in1 ..., as regions have them."""
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    if isinstance(output.args[0], torch.fx.Node):
        output.args = ((output.args[0],),)
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    for number, node in enumerate(placeholders):
        node.target = node.name = f"in{number}"
    module.recompile()
    return module


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.transpose(0, 2) * 2,
        lambda x: (x * 2).transpose(0, 1),
        lambda x: x.expand(2, 3, 1, 5) + 1,
        lambda x: (x[:, :1] * 2).squeeze(1),
        lambda x: x.sum(),
    ],
)
def test_results_are_laid_out_as_torch_would(traced: Trace, fn: Any):
    x = torch.randn(3, 1, 5)
    module = tupled(traced(fn, x))
    program = region_program(module, layouts_of([x]))
    served = reference(program, print)
    assert served.kernel is not None
    found = served.kernel(x)
    got = program.results[0].arranged(found[0])
    torch.testing.assert_close(got, fn(x))
    assert got.stride() == fn(x).stride()


def test_strides_that_no_order_of_axes_gives_are_a_copy():
    result = RegionResult(0, (0, 1), (8, 1), is_copy=True)
    arranged = result.arranged(torch.arange(6.0).view(2, 3))
    assert arranged.stride() == (8, 1)
    assert arranged.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_inputs_that_only_give_a_shape_are_not_read(traced: Trace):
    x, y = torch.randn(3), torch.randn(3, 4)
    module = tupled(traced(lambda y, x: x * torch.ones_like(y[:, 0]), y, x))
    program = region_program(module, layouts_of([y, x]))
    assert program.inputs == (1,)


def test_float64_is_taken_for_float32(traced: Trace):
    x = torch.randn(3, dtype=torch.float64)
    program = region_program(tupled(traced(lambda x: x * 2, x)), layouts_of([x])).program
    assert str(program.inputs[0].dtype) == "f32"


def test_integers_are_numbers(traced: Trace):
    x = torch.zeros(3, dtype=torch.int64)
    found = region_program(tupled(traced(lambda x: x * 2.5, x)), layouts_of([x]))
    assert [t.dtype.name for t in found.program.inputs] == ["i64"]
    narrow = x.to(torch.int8)
    with pytest.raises(UnsupportedError, match="int8"):
        region_program(tupled(traced(lambda x: (x + x) * 2.5, narrow)), layouts_of([narrow]))


def growing(traced: Trace, **how: Any) -> tuple[RegionCall, list[RegionProgram]]:
    """A region of so many rows as it is called with, and the programs that it has been served."""
    made: list[RegionProgram] = []

    def server(program: RegionProgram, own: Any) -> Service:
        made.append(program)
        return reference(program, own)

    module = tupled(traced(lambda x: F.silu(x) + 1, torch.randn(3, 4), symbolic=True))
    return RegionCall("key", module, server, **how), made


def takes_rows(call: RegionCall, *counts: int) -> None:
    for rows in counts:
        y = torch.randn(rows, 4)
        torch.testing.assert_close(call(y)[0], F.silu(y) + 1)


def test_each_size_has_an_entry_made_once(traced: Trace):
    call, made = growing(traced)
    takes_rows(call, 3, 5, 3)
    assert [p.program.inputs[0].shape for p in made] == [(3, 4), (5, 4)]
    assert call.dispatch_table().splitlines() == [
        "(float32[3, 4]) -> eager: its program in plain PyTorch",
        "(float32[5, 4]) -> eager: its program in plain PyTorch",
    ]


def test_beyond_max_sizes_it_falls_back_to_eager(traced: Trace):
    call, made = growing(traced, max_sizes=2)
    takes_rows(call, 3, 5)
    with pytest.warns(MirageWarning, match="more than 2 sets of sizes"):
        takes_rows(call, 6)
    takes_rows(call, 7, 6, 3)  # said once
    assert len(made) == 2
    beyond = Served(Server.EAGER, Reason(Code.MAX_SIZES, ("2",)))
    assert call.dispatch_table().splitlines()[2] == f"others -> {beyond}"


def test_a_kernel_gets_the_regions_own_operators_as_its_baseline(traced: Trace):
    baselines = []

    def server(program: RegionProgram, own: Any) -> Service:
        baselines.append(own)
        return Service(None, Reason(Code.NONE_FASTER, ("slower",)))

    x, y = torch.randn(3, 4), torch.randn(4, 3)
    module = tupled(traced(lambda x, y: (x + y.T).transpose(0, 1) * 2, x, y))
    call = RegionCall("key", module, server)
    (result,) = call(x, y)
    torch.testing.assert_close(result, (x + y.T).T * 2)
    assert baselines[0](x, y).is_contiguous()
    entry = call.prepare([TensorLayout.of(x), TensorLayout.of(y)])
    assert (entry.served.by, entry.served.why.code) == (Server.EAGER, Code.NONE_FASTER)


def test_values_inside_are_not_rounded(traced: Trace):
    def normed(x: torch.Tensor) -> torch.Tensor:
        return (x.float() * 3).to(torch.bfloat16) * x

    x = torch.randn(3, 4, dtype=torch.bfloat16)
    program = region_program(tupled(traced(normed, x)), layouts_of([x])).program
    assert not any(node.op == "cast" for node in program.nodes)
    assert str(program.outputs[0].tensor.dtype) == "bf16"


def test_heads_of_queries_share_keys_and_values_under_a_mask():
    """What a graph for a GPU has where a static cache is read: heads repeated by copies, and a mask
    of numbers made beside them.
    """
    aten = torch.ops.aten

    def attention(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor
    ) -> torch.Tensor:
        def repeated(x: torch.Tensor) -> torch.Tensor:
            x = aten.expand(aten.unsqueeze(x, 2), [1, 2, 4, 64, 32])
            x = aten.clone(x, memory_format=torch.contiguous_format)
            return aten._unsafe_view(x, [1, 8, 64, 32])

        low = aten.scalar_tensor(-65504.0, dtype=q.dtype, device=q.device)
        bias = aten.where(seen, aten.scalar_tensor(0.0, dtype=q.dtype, device=q.device), low)
        found = aten._scaled_dot_product_cudnn_attention(
            q, repeated(k), repeated(v), bias, False, scale=0.125
        )
        return found[0]

    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    kinds = {"dtype": torch.bfloat16, "device": "cuda"}
    with FakeTensorMode():
        inputs = [torch.empty(1, h, n, 32, **kinds) for h, n in ((8, 1), (2, 64), (2, 64))]
        inputs.append(torch.empty(1, 1, 1, 64, dtype=torch.bool, device="cuda"))
        module = make_fx(attention)(*inputs)
    module.graph.eliminate_dead_code()
    (region,) = (found := cut(module.graph, target("h200"), rest_fuses=True)).regions
    graph = region_graph(region, found.facts)
    layouts = layouts_of([n.meta["val"] for n in graph.inputs])
    made = region_program(graph.module, layouts)
    shapes = sorted(t.shape for t in made.program.inputs)
    assert shapes == [(1, 1, 1, 64), (1, 2, 64, 32), (1, 2, 64, 32), (1, 8, 1, 32)]
    assert sorted(made.program.sizes.values()) == [2, 4, 32, 32, 64]


def test_parts_of_many_operators_are_no_region(traced: Trace):
    def rotated(x: torch.Tensor, w: torch.Tensor, cos: torch.Tensor) -> torch.Tensor:
        y = (x @ w).view(4, 16)
        turned, rest = y[:, :12], y[:, 12:]
        half = torch.cat((-turned[:, 6:], turned[:, :6]), -1)
        return torch.cat((turned * cos + half * cos.exp(), rest), -1)

    given = torch.randn(1, 8), torch.randn(8, 64), torch.randn(12)
    with pytest.raises(UnsupportedError, match="read in parts"):
        region_program(tupled(traced(rotated, *given)), layouts_of(given))
