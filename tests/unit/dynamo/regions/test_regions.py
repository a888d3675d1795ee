"""Cuts of graphs, and the reasons for nodes in no region."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from mirage_py.dynamo.compile.compiler import GraphCompiler
from mirage_py.dynamo.regions.costs import Costs
from mirage_py.dynamo.regions.nodes import base_name
from mirage_py.dynamo.regions.region_graph import region_graph
from mirage_py.dynamo.regions.region_program import RegionProgram, TensorLayout, region_program
from mirage_py.dynamo.regions.regions import Cut, cut, left_alone
from mirage_py.dynamo.serve.options import BackendOptions
from mirage_py.dynamo.serve.service import Service
from mirage_py.reasons import Code, Reason
from mirage_py.targets import target

Trace = Callable[..., torch.fx.GraphModule]
H200 = target("h200")


def names(found: Cut) -> list[str]:
    return [" ".join(base_name(n) for n in region.nodes) for region in found.regions]


def cut_of(module: torch.fx.GraphModule, **options: Any) -> Cut:
    return cut(module.graph, H200, rest_fuses=options.pop("rest_fuses", True), **options)


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, device="meta")


def gated(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.silu(x @ gate) * (x @ up)


def test_two_products_and_what_joins_them_are_one_region(traced: Trace):
    module = traced(gated, half(4, 4096), half(4096, 1024), half(4096, 1024))
    assert names(cut_of(module)) == ["mm silu mm mul"]


@pytest.mark.parametrize(("tokens", "expected"), [(1, "embedding mm silu"), (4, "mm silu")])
def test_rows_of_a_table_are_read_in_the_kernel_of_a_product_where_there_is_one(
    traced: Trace, tokens: int, expected: str
):
    def embedded(ids: torch.Tensor, table: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.silu(F.embedding(ids, table) @ weight)

    ids = torch.zeros(tokens, dtype=torch.int64, device="meta")
    module = traced(embedded, ids, half(32000, 4096), half(4096, 1024))
    assert names(cut_of(module)) == [expected]


def test_large_products_are_left_to_the_library(traced: Trace):
    module = traced(gated, half(8192, 4096), half(4096, 14336), half(4096, 14336))
    found = cut_of(module)
    assert names(found) == []
    assert ("aten.mm.default", 2, Reason(Code.SAVES_NOTHING)) in left_alone(found)


def test_one_product_alone_is_one_where_the_library_would_cut_its_sum(traced: Trace):
    narrow = traced(torch.mm, half(4, 4096), half(4096, 4096))
    assert names(cut_of(narrow)) == ["mm"]
    assert names(cut_of(traced(torch.mm, half(4, 4096), half(4096, 14336)))) == []
    assert names(cut_of(traced(torch.mm, half(512, 4096), half(4096, 4096)))) == []


def test_a_residual_is_added_where_its_product_is_made_and_not_before_the_next_norm(traced: Trace):
    def block(r: torch.Tensor, x: torch.Tensor, *weights: torch.Tensor) -> tuple[Any, ...]:
        stream = r + x @ weights[0]
        h = stream.float()
        y = h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-6)
        return stream, y.to(torch.bfloat16) @ weights[1]

    weights = half(4096, 4096), half(4096, 4096)
    module = traced(block, half(1, 4096), half(1, 4096), *weights)
    assert names(cut_of(module)) == ["mm add", "_to_copy mul mean add rsqrt mul _to_copy mm"]


def test_a_copy_goes_with_what_it_copies(traced: Trace):
    def heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        found = torch.softmax(q @ k.transpose(1, 2), -1) @ v
        return found.transpose(0, 1).reshape(197, 1024) @ w + w[0]

    made = [half(16, 197, 64) for _ in range(3)]
    first, second = names(cut_of(traced(heads, *made, half(1024, 1024))))
    assert first.endswith("bmm clone")
    assert second == "mm add"


def test_what_a_product_of_many_rows_reads_is_made_before_it(traced: Trace):
    def normed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.gelu((x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)) @ w)

    def found(rows: int) -> list[str]:
        return names(cut_of(traced(normed, half(rows, 1024), half(1024, 4096))))

    assert found(16) == ["mul mean add rsqrt mul mm gelu"]
    assert found(1576) == ["mm gelu"]


def test_max_autotune_cuts_no_sum_of_one_row(traced: Trace):
    def outside(rows: int, *, tunes: bool) -> float:
        module = traced(torch.mm, half(rows, 4096), half(4096, 4096))
        found = cut(module.graph, H200, rest_fuses=True, rest_tunes=tunes, min_gain=0.0)
        return found.regions[0].rest_us

    assert outside(1, tunes=True) < 0.85 * outside(1, tunes=False)
    assert outside(2, tunes=True) == outside(2, tunes=False)


def test_a_residual_goes_with_the_product_that_is_added_to_it(traced: Trace):
    module = traced(lambda r, x, w: r + x @ w, half(16, 4096), half(16, 14336), half(14336, 4096))
    assert names(cut_of(module)) == ["mm add"]


def test_products_of_one_value_are_a_region_if_one_grid_does_for_both(traced: Trace):
    def beside(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x @ a, x @ b

    def found(rows: int, *widths: int) -> list[str]:
        weights = [half(4096, width) for width in widths]
        return names(cut_of(traced(beside, half(rows, 4096), *weights)))

    assert found(16, 1024, 1024) == ["mm mm"]
    assert found(16, 4096, 1024) == ["mm", "mm"]
    assert found(1, 4096, 1024) == ["mm mm"]


def test_pointwise_runs_are_a_region_only_where_the_rest_does_not_fuse(traced: Trace):
    module = traced(lambda x: (x * 2).relu() + 1, half(64, 4096))
    assert names(cut_of(module)) == []
    assert names(cut_of(module, rest_fuses=False)) == ["mul relu add"]


@pytest.mark.parametrize(
    ("rows", "columns", "is_one"),
    [(8192, 4096, True), (8192, 768, False), (64, 4096, False), (128, 128256, True)],
)
def test_long_rows_that_the_rest_goes_over_again_are_a_region(
    traced: Trace, rows: int, columns: int, is_one: bool
):
    def norm(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x) * scale

    def loss(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, labels)

    x = half(rows, columns)
    normed = cut_of(traced(norm, x, half(columns)))
    assert names(normed) == ["_to_copy pow mean add rsqrt mul _to_copy mul"] * is_one
    labels = torch.zeros(rows, dtype=torch.int64, device="meta")
    assert names(cut_of(traced(loss, x, labels))) == ["_log_softmax nll_loss_forward"] * is_one
    # One pass is what the rest takes, too.
    assert not names(cut_of(traced(lambda x: x.sum(-1), x)))


def test_a_product_does_not_wait_for_another_in_one_kernel(traced: Trace):
    module = traced(lambda x, a, b: (x @ a).relu() @ b, half(4, 512), half(512, 4096),
                    half(4096, 512))  # fmt: skip
    assert all(name.count("mm") == 1 for name in names(cut_of(module)))


def test_a_narrow_product_stays_for_the_next_one(traced: Trace):
    def lora(x: torch.Tensor, w: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return x @ w + (x @ a) @ b

    module = traced(lora, half(16, 4096), half(4096, 4096), half(4096, 16), half(16, 4096))
    assert names(cut_of(module)) == ["mm mm mm add"]


def test_attention_is_one_region_through_its_softmax(traced: Trace):
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.transpose(1, 2), -1) @ v

    module = traced(attention, half(32, 128, 64), half(32, 512, 64), half(32, 512, 64))
    assert names(cut_of(module)) == ["bmm _softmax bmm"]


def test_a_region_is_convex(traced: Trace):
    def around(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return (y + y.cumsum(-1)) @ w

    module = traced(around, half(4, 512), half(512, 512))
    for region in cut_of(module, rest_fuses=False).regions:
        inside = dict.fromkeys(region.nodes)
        reached: dict[torch.fx.Node, None] = {}
        for node in module.graph.nodes:
            outside = [n for n in node.all_input_nodes if n in reached]
            from_inside = [n for n in node.all_input_nodes if n in inside]
            if node in inside:
                assert outside == []
            elif outside or from_inside:
                reached[node] = None


def rotated(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x @ w
    return y + torch.cat((-y[:, 256:], y[:, :256]), -1)


def test_halves_of_what_a_product_made_stay_in_its_kernel(traced: Trace):
    assert names(cut_of(traced(rotated, half(4, 512), half(512, 512)))) == ["mm neg cat add"]
    # Of many rows a tile of columns is no whole head.
    many = names(cut_of(traced(rotated, half(512, 512), half(512, 512))))
    assert not any("mm" in name and "cat" in name for name in many)


@pytest.mark.parametrize(
    "moved",
    [
        lambda y: y.flip(-1),
        lambda y: y.roll(1, -1),
        lambda y: F.pad(y[:, 1:], (0, 1)),
        lambda y: torch.cat((y[:, 5:], y[:, :5]), -1),
    ],
)
def test_what_a_product_made_is_not_read_at_two_places_in_its_kernel(traced: Trace, moved: Any):
    def shifted(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x @ w
        return y + moved(y)

    found = names(cut_of(traced(shifted, half(4, 512), half(512, 512))))
    assert not any("mm" in name and "add" in name for name in found)


def layer(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *weights: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """The first kernel of a layer that decodes: norm, three products, rotary positions."""

    def rotary(y: torch.Tensor) -> torch.Tensor:
        return y * cos + torch.cat((-y[..., 32:], y[..., :32]), -1) * sin

    h = F.rms_norm(x, (2048,))
    q, k, v = ((h @ w.t()).view(1, 1, -1, 64).transpose(1, 2) for w in weights)
    return rotary(q), rotary(k), v


def test_a_region_with_rotary_positions_that_nothing_serves_is_tried_without(traced: Trace):
    def serve(program: RegionProgram, own: Any) -> Service:
        rotates = any(n.op == "where" for n in program.program.nodes)
        return Service(None if rotates else own, Reason(Code.SAVES_NOTHING))

    weights = [half(width, 2048) for width in (2048, 512, 512)]
    module = traced(layer, half(1, 1, 2048), half(1, 1, 64), half(1, 1, 64), *weights)
    compiler = GraphCompiler(BackendOptions(target="h200"), H200, serve)
    assert compiler.fused("inference", module) is not module
    (served,) = (r for r, _, entry in compiler.plans[-1].rows if entry.served.kernel is not None)
    shown = [base_name(n) for n in served.nodes]
    assert shown.count("mm") == 3
    assert "cat" not in shown


def test_a_product_that_is_written_whole_is_not_read_in_parts_in_its_kernel(traced: Trace):
    def both(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x @ w
        return y, y + torch.cat((-y[:, 256:], y[:, :256]), -1)

    def fused(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x @ w
        q, v = y[:, :512], y[:, 512:]
        return q + torch.cat((-q[:, 256:], q[:, :256]), -1), v

    for fn, width in ((both, 512), (fused, 1024)):
        module = traced(fn, half(4, 512), half(512, width))
        assert not any("mm" in name and "cat" in name for name in names(cut_of(module)))


def test_work_on_another_grid_is_not_beside_products(traced: Trace):
    def beside(x: Any, w: Any, c: Any, y: Any) -> tuple[torch.Tensor, ...]:
        return (x @ w) * c, y * c

    module = traced(beside, half(4, 512), half(512, 512), half(1, 512), half(64, 512))
    assert names(cut_of(module)) == ["mm mul"]


def test_masks_of_positions_are_made_where_they_are_read(traced: Trace):
    def attention(q: Any, k: Any, v: Any, at: Any, keep: Any, *, padded: bool) -> torch.Tensor:
        seen = torch.arange(1024, device=q.device) <= torch.arange(1, device=q.device) + at
        seen = seen & keep if padded else seen
        return torch.softmax((q @ k.transpose(1, 2)).masked_fill(~seen, -math.inf), -1) @ v

    made = half(16, 1, 64), half(16, 1024, 64), half(16, 1024, 64)
    at = torch.zeros((), dtype=torch.int64, device="meta")
    keep = torch.zeros((1, 1, 1024), dtype=torch.bool, device="meta")
    for padded in (False, True):
        found = cut_of(traced(partial(attention, padded=padded), *made, at, keep))
        (region,) = (r for r in found.regions if any(base_name(n) == "bmm" for n in r.nodes))
        inputs = region_graph(region, found.facts).inputs
        assert [n.meta["val"].numel() for n in inputs].count(1) == 1
        assert any(n.meta["val"].dtype is torch.bool for n in inputs) == padded


def test_rotary_positions_are_in_the_kernel_of_queries_keys_and_values(traced: Trace):
    weights = [half(width, 2048) for width in (2048, 512, 512)]
    found = cut_of(traced(layer, half(1, 1, 2048), half(1, 1, 64), half(1, 1, 64), *weights))
    assert len(found.regions) == 1, names(found)
    graph = region_graph(found.regions[0], found.facts)
    layouts = [TensorLayout.of(n.meta["val"]) for n in graph.inputs]
    program = region_program(graph.module, layouts).program
    read = [n.access.tensor for n in program.nodes if n.op == "load"]
    # The columns of queries and keys in two halves, each read once.
    weights_read = [t for t in read if len(program.tensors[t].shape) == 2]
    assert sorted(weights_read.count(t) for t in dict.fromkeys(weights_read)) == [1, 2, 2]
    # One grid for all three: key heads and the columns of half a head.
    results = [program.nodes[o.node] for o in program.outputs]
    shared = [d for d in program.sizes if all(d in node.dims for node in results)]
    assert sorted(program.sizes[d] for d in shared) == [8, 32]


@pytest.mark.parametrize(
    ("fn", "inputs", "why"),
    [
        (lambda x: x.lgamma(), (torch.randn(4),), Code.NO_HANDLER),
        (lambda i: i + i, (torch.zeros(3, dtype=torch.int8),), Code.RESULT_TYPE),
        (lambda x: x > 2, (torch.randn(4, dtype=torch.float64),), Code.OPERAND_TYPE),
        (lambda a, b: torch.cat((a, b)), (torch.randn(4), torch.randn(2)), Code.GROWING_CACHE),
        (lambda x: x[:0] * 2, (torch.randn(4),), Code.EMPTY_TENSOR),
        (lambda x: x * 2, (torch.randn(4, dtype=torch.float64),), Code.RESULT_TYPE),
        (lambda x, n: x * n, (half(4), torch.tensor(2.0)), Code.OPERAND_DEVICE),
    ],
)  # fmt: skip
def test_what_is_left_alone_says_why(traced: Trace, fn: Any, inputs: Any, why: Code):
    found = cut_of(traced(fn, *inputs), rest_fuses=False)
    assert found.regions == ()
    assert why in [reason.code for _, _, reason in left_alone(found)]


def test_identical_layers_have_one_key(traced: Trace):
    def layers(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        for w in weights:
            x = F.rms_norm(x @ w, (1024,)) * 2
        return x

    module = traced(layers, half(4, 1024), *(half(1024, 1024) for _ in range(6)))
    found = cut_of(module)
    keys = [region_graph(r, found.facts).key for r in found.regions]
    assert len(keys) >= 5
    assert len(dict.fromkeys(keys)) <= 2


def test_the_key_depends_on_what_is_computed(traced: Trace):
    def key(fn: Any, *inputs: Any) -> str:
        found = cut_of(traced(fn, *inputs), rest_fuses=False)
        (region,) = found.regions
        return region_graph(region, found.facts).key

    base = key(lambda x: (x * 2).relu(), half(4, 8))
    assert key(lambda y: (y * 2).relu(), half(4, 8)) == base
    assert key(lambda x: (x * 3).relu(), half(4, 8)) != base
    assert key(lambda x: (x * 2).relu(), half(4, 9)) != base
    assert key(lambda x: (x * 2).relu(), half(8, 4).T) != base
    assert key(lambda x: (x * 2).relu(), half(4, 8).float()) != base


def test_masks_of_positions_come_along_and_are_no_inputs(traced: Trace):
    def masked(x: torch.Tensor) -> torch.Tensor:
        keep = torch.ones(8, 8, dtype=torch.bool, device=x.device).tril()
        return torch.softmax(x.masked_fill(~keep, -torch.inf), -1)

    found = cut_of(traced(masked, half(4, 8, 8)), rest_fuses=False)
    (region,) = found.regions
    assert len(region_graph(region, found.facts).inputs) == 1


def test_products_of_queries_keys_and_values_stand_together(traced: Trace):
    def norm(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)

    def normed(x: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = norm(x)
        return tuple(norm(y @ w) for w in weights)

    module = traced(normed, half(4, 1024), half(1024, 1024), half(1024, 1024), half(1024, 1024))
    found = names(cut_of(module))
    assert any(name.endswith("mm mm mm") for name in found)


def test_attention_of_torch_takes_its_prologue_along(traced: Trace):
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q * 2 + 1, k, v)

    q, k, v = (torch.randn(1, 4, n, 8) for n in (1, 64, 64))
    module = traced(attention, q, k, v)
    found = cut_of(module)
    (name,) = names(found)
    assert name.startswith("mul add _scaled_dot_product")
    (region,) = found.regions
    inner = region_graph(region, found.facts).module
    torch.testing.assert_close(inner(q, k, v)[0], attention(q, k, v))


@pytest.mark.parametrize("biased", [False, True])
def test_attention_with_a_bias_is_one_where_the_library_has_a_slower_kernel(
    traced: Trace, biased: bool
):
    def attention(q: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        operator = torch.ops.aten._scaled_dot_product_cudnn_attention
        return operator(q, q, q, bias if biased else None, False)[0]

    module = traced(attention, half(2, 32, 2048, 128), half(1, 32, 2048, 2048))
    assert names(cut_of(module)) == ["_scaled_dot_product_cudnn_attention"] * biased


def test_axes_of_a_tensor_outside_are_not_those_of_the_region(traced: Trace):
    """A product over heads that lie one after the other is over one dimension."""

    def projected(heads: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return r + heads.transpose(1, 2).reshape(1, 4096) @ w

    module = traced(projected, half(1, 32, 1, 128), half(1, 4096), half(4096, 4096))
    found = cut_of(module)
    (region,) = found.regions
    graph = region_graph(region, found.facts)
    shapes = [tuple(n.meta["val"].shape) for n in graph.inputs]
    assert (1, 4096) in shapes
    assert (1, 32, 1, 128) not in shapes


def test_a_tensor_that_is_read_in_two_shapes_is_one_input(traced: Trace):
    def twice(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x + (x.view(4, 4096) @ w).view(1, 4, 4096)

    found = cut_of(traced(twice, half(1, 4, 4096), half(4096, 4096)))
    (region,) = found.regions
    assert len(region_graph(region, found.facts).inputs) == 2


def test_writing_to_a_cache_stands_between_no_two_operands_of_attention(traced: Trace):
    """Repeated keys are read where they lie, not copied outside of the region, as values are."""
    heads, groups, tokens, size = 8, 4, 1024, 128

    def repeated(x: torch.Tensor) -> torch.Tensor:
        wide = x[:, :, None].expand(1, heads, groups, tokens, size)
        return wide.reshape(1, heads * groups, tokens, size)

    def normed(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)

    def decode(
        x: torch.Tensor, wq: torch.Tensor, wk: torch.Tensor, wv: torch.Tensor,
        keys: torch.Tensor, values: torch.Tensor, at: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        # The norm of queries stands before the product of keys.
        q = normed((x @ wq).view(1, heads * groups, 1, size))
        k = normed((x @ wk).view(1, heads, 1, size))
        keys = keys.index_copy(2, at, k)
        values = values.index_copy(2, at, (x @ wv).view(1, heads, 1, size))
        return F.scaled_dot_product_attention(q, repeated(keys), repeated(values))

    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.bfloat16)

    weights = [empty(4096, n * size) for n in (heads * groups, heads, heads)]
    caches = [empty(1, heads, tokens, size) for _ in range(2)]
    module = traced(decode, empty(1, 4096), *weights, *caches, torch.zeros(1, dtype=torch.int64))
    first, second = names(cut_of(module))
    assert first == "mm mm mm"
    assert "clone clone _scaled_dot_product" in second


def test_a_product_that_sums_nothing_up_is_one_of_other_operators(traced: Trace):
    """Angles of rotary positions: torch writes them as a product, and Inductor fuses them."""
    long = torch.randn((1, 64, 1), device="meta")
    short = torch.randn((1, 1, 1), device="meta")
    assert names(cut_of(traced(lambda a, b: (a @ b).transpose(1, 2), long, short))) == []


def test_casts_inside_a_region_make_no_product_of_float32(traced: Trace):
    """As torch takes attention under a mask apart: in float32 its products would be the longest."""
    heads = half(128, 197, 64)

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = (q.float() @ k.float().transpose(1, 2)) * 0.125
        return (torch.softmax(scores, -1) @ v.float()).to(torch.bfloat16)

    (region,) = cut_of(traced(attention, heads, heads, heads)).regions
    assert base_name(region.nodes[-1]) == "_to_copy"
    assert region.time_us < 0.2 * region.rest_us


def packed(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    low, high = (w & 0xF).to(torch.int8) - 8, (w >> 4).to(torch.int8) - 8
    full = torch.stack((low, high), dim=-1).flatten(-2).to(x.dtype)
    return F.linear(x, full * s[:, None])


def test_packed_codes_are_taken_apart_in_the_region_of_their_product(traced: Trace):
    bytes_ = torch.zeros(1024, 512, dtype=torch.uint8, device="meta")
    found = cut_of(traced(packed, half(4, 1024), bytes_, half(1024)))
    (region,) = found.regions
    taken = [base_name(n) for n in region.nodes]
    assert {"bitwise_and", "__rshift__", "sub", "stack", "mm"} <= {*taken}
    # Less 200 an int8 wraps around.
    wraps = traced(lambda w: ((w & 0xF).to(torch.int8) - 200).float().exp(), bytes_)
    assert ("aten.sub.Tensor", 1, Reason(Code.RESULT_TYPE, ("int8",))) in left_alone(cut_of(wraps))


def test_the_work_of_a_cut_grows_with_its_runs(traced: Trace, monkeypatch: pytest.MonkeyPatch):
    # Costing every run anew took most of 13 CPU s for a graph of 6,000 nodes.
    def blocks(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        for w in weights:
            x = x + F.silu(torch.tanh(x).exp() @ w).relu()
        return x

    costed = []
    real = Costs.compute_us
    monkeypatch.setattr(
        Costs, "compute_us", lambda self, *given: costed.append(given) or real(self, *given)
    )
    module = traced(blocks, half(4, 512), *[half(512, 512) for _ in range(16)])
    found = cut_of(module)
    # Three orders; in each, one step for each operator of each run, however long it is.
    assert len(found.order) == 6 * 16
    assert len(costed) <= 3 * len(found.order) * 36


def test_positions_that_are_read_twice_each_are_followed_once(traced: Trace):
    """Each adds two forms of the one before: 2^60 ways lead to the first."""

    def counted(x: torch.Tensor, position: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        for _ in range(60):
            position = position + (position - 1)
        return F.silu(x[position] @ weight)

    one = torch.zeros(1, dtype=torch.int64, device="meta")
    module = traced(counted, half(64, 4096), one, half(4096, 1024))
    assert any("mm silu" in region for region in names(cut_of(module)))
