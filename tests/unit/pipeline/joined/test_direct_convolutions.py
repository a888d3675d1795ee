"""Depthwise convolutions in one part with what stands around them."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import mirage_py
from mirage_py.pipeline.joined.direct_convolutions import DirectPartition, direct_convolutions
from mirage_py.pipeline.pipeline import partition_of
from mirage_py.ugraph.rewrite.convolutions import library_convolution

X, W = torch.empty(2, 8, 32, 32), torch.empty(8, 1, 3, 3)
BIAS, ROWS = torch.empty(8, 1, 1), torch.empty(8, 8, 1, 1)


def depthwise(x, w, stride=1):
    return functional.conv2d(x, w, None, stride, 1, 1, x.shape[1])


def direct(function, *args) -> DirectPartition:
    whole = partition_of(mirage_py.trace(function, *args), seed=0)
    assert whole is not None
    return direct_convolutions(whole)


def test_what_is_around_it_element_by_element_is_in_its_part():
    found = direct(lambda x, w, b: (depthwise(x.relu(), w) + b).relu(), X, W, BIAS)
    (part,) = found.partition.parts
    assert found.ours == (0,)
    assert [n.op for n in part.nodes if n.op in ("relu", "sum", "add")] == [
        "relu", "sum", "add", "relu",
    ]  # fmt: skip
    assert [t.name for t in found.partition.cuts] == []
    assert library_convolution(part) is None


def test_by_itself_it_is_a_part_of_ours():
    found = direct(depthwise, X, W)
    assert found.ours == (0,)
    assert library_convolution(found.partition.parts[0]) is not None


def test_a_result_that_others_read_too_stays_in_memory():
    found = direct(lambda x, w, v: depthwise(depthwise(x, w), v), X, W, torch.empty(8, 1, 3, 3))
    assert found.ours == (0, 1)

    def twice(x, w):
        y = depthwise(x, w)
        return y.relu(), y

    two = direct(twice, X, W)
    assert {o.tensor.name for p in two.partition.parts for o in p.outputs} == {"out0", "out1"}


def test_it_is_not_computed_again_for_each_result_of_a_product():
    found = direct(lambda x, w, v: functional.conv2d(depthwise(x, w), v), X, W, ROWS)
    assert [p.nodes[p.outputs[0].node].op for p in found.partition.parts] == ["sum", "matmul"]


def test_several_results_of_a_channel_are_told_apart():
    w = torch.empty(16, 1, 3, 3)
    found = direct(lambda x, w: functional.conv2d(x, w, None, 1, 1, 1, 8).relu(), X, w)
    (part,) = found.partition.parts
    (load,) = (n for n in part.nodes if n.op == "load" and n.access.tensor == "x")
    assert part.sizes[load.access.index[1].name] == X.shape[1]


@pytest.mark.parametrize("groups", [1, 2])
def test_sums_over_many_channels_are_the_librarys(groups):
    w = torch.empty(32, 8 // groups, 3, 3)
    found = direct(lambda x, w: functional.conv2d(x, w, None, 1, 1, 1, groups), X, w)
    assert found.ours == ()


def test_few_of_many_are_searched():
    weights = [torch.empty(8, 1, 3, 3) for _ in range(9)]

    def function(x, *weights):
        for w in weights:
            x = depthwise(torch.nn.functional.pad(x, (0, 1)), w).softmax(-1)
        return x

    found = direct(function, X, *weights)
    assert len(found.ours) == 6


def test_without_a_gpu_it_is_ours_where_kernels_are_cuda():
    program = mirage_py.trace(depthwise, X[:1, :4, :8, :16].bfloat16(), W[:4].bfloat16())
    result = mirage_py.optimize(program, target="h200", backend="cuda")
    assert result.plan is not None
    assert [type(k).__name__ for k in result.plan.ugraph.kernels] == ["BlockGraph"]
    assert result.evidence is not None
