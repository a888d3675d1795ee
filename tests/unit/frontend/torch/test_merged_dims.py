"""Dimensions that nothing tells apart are one: rows of images, and pixels of patches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mirage_py.frontend.torch import trace
from mirage_py.ugraph.checks.validate import validate_program
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.rewrite.merged_dims import (
    with_merged_axes,
    with_merged_columns,
    with_merged_patches,
    with_merged_reductions,
    with_merged_rows,
)
from mirage_py.verify.sizes.shrink import shrink
from mirage_py.verify.sizes.small_sizes import small_extents

_SHAPE = (4, 30, 48, 56)


def _norm(x, g):
    mean = x.mean(1, keepdim=True)
    return (x - mean) * g[:, None, None]


def test_a_norm_over_channels_reads_pixels_in_one_run():
    data = torch.randn(_SHAPE), torch.randn(30)
    program = trace(_norm, *data)
    merged = with_merged_rows(program)
    validate_program(merged)
    assert sorted(merged.sizes.values()) == [4, 30, 48 * 56]
    (output,) = merged.outputs
    assert output.tensor == program.outputs[0].tensor
    given = {t.name: d.double().numpy() for t, d in zip(program.inputs, data, strict=True)}
    (found,) = evaluate_program(merged, given, FloatMeaning()).values()
    want = _norm(*(d.double() for d in data)).numpy()
    np.testing.assert_allclose(found, want, atol=1e-12)


def test_the_last_two_of_several_axes_are_one():
    merged = with_merged_rows(trace(lambda x: x.sigmoid() * x, torch.empty(30, 20, 28, 28)))
    assert sorted(merged.sizes.values()) == [20, 30, 784]


@pytest.mark.parametrize(("images", "sizes"), [(8, [8, 256, 512]), (512, [512, 256 * 512])])
def test_rows_that_tiles_cover_are_one_in_huge_tensors(images: int, sizes: list[int]):
    """Of 512 pixels: a block takes several side by side. A bias of the rows keeps them apart."""
    data = torch.empty(images, 256, 512, device="meta")
    assert sorted(with_merged_rows(trace(torch.sigmoid, data)).sizes.values()) == sorted(sizes)
    bias = torch.empty(256, 1, device="meta")
    apart = with_merged_rows(trace(lambda x, b: x + b, data, bias))
    assert sorted(apart.sizes.values()) == sorted([images, 256, 512])


def test_rows_that_another_tensor_has_before_its_channels_are_one_too():
    data = torch.randn(4, 48, 56, 30), torch.randn(_SHAPE)
    program = trace(lambda x, y: x.permute(0, 3, 1, 2) * y, *data)
    merged = with_merged_rows(program)
    validate_program(merged)
    assert sorted(merged.sizes.values()) == [4, 30, 48 * 56]
    given = {t.name: d.double().numpy() for t, d in zip(program.inputs, data, strict=True)}
    (found,) = evaluate_program(merged, given, FloatMeaning()).values()
    want = (data[0].permute(0, 3, 1, 2).double() * data[1].double()).numpy()
    np.testing.assert_allclose(found, want, atol=1e-12)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.cumsum(-1),
        lambda x: x - x.mean(-1, keepdim=True),
        lambda x: x - x.mean((2, 3), keepdim=True),
        lambda x: x * torch.arange(56, device=x.device),
        lambda x: x + x[:, :, :1],
        lambda x: x.transpose(2, 3).exp(),
        lambda x: x.flip(-1),
        lambda x: torch.einsum("bchw,dc->bdhw", x, x[0, :, :30, 0]),
    ],
    ids=["scan", "rows", "both", "positions", "column", "transposed", "flipped", "product"],
)
def test_axes_that_something_tells_apart_stay(function):
    program = trace(function, torch.empty(_SHAPE, device="meta"))
    assert with_merged_rows(program).sizes == program.sizes


@pytest.mark.parametrize(
    "x",
    [
        torch.empty(4, 30, 48, 64, device="meta"),
        torch.empty(4, 8, 16, 56, device="meta"),
        torch.empty(4, 56, 48, 30, device="meta").permute(0, 3, 2, 1),
        torch.empty(4, 30, 48, 64, device="meta")[..., :56],
    ],
    ids=["whole_tiles", "small", "turned", "gaps"],
)
def test_where_it_would_not_be_one_run_or_not_pay(x):
    program = trace(lambda x: x - x.mean(1, keepdim=True), x)
    assert with_merged_rows(program).sizes == program.sizes


def _patches(x, w):
    rows = x.unflatten(3, (3, 4)).unflatten(2, (2, 4)).permute(0, 2, 4, 1, 3, 5)
    return rows.reshape(len(x), 6, -1) @ w


@pytest.mark.parametrize(
    ("function", "weights"),
    [(_patches, (48, 5)), (lambda x, w: F.conv2d(x, w, stride=4), (5, 3, 4, 4))],
    ids=["cut", "convolution"],
)
def test_a_matmul_of_patches_has_one_loop_and_rows(function, weights):
    data = torch.randn(2, 3, 8, 12), torch.randn(weights)
    program = trace(function, *data)
    merged = with_merged_patches(program)
    validate_program(merged)
    assert sorted(merged.sizes.values()) == [2, 5, 6, 48]
    given = {t.name: d.double().numpy() for t, d in zip(program.inputs, data, strict=True)}
    (found,) = evaluate_program(merged, given, FloatMeaning()).values()
    want = function(*(d.double() for d in data)).numpy()
    np.testing.assert_allclose(found, want, atol=1e-12)
    # Each digit of what is divided has fewer values, so equality is cheap to test.
    small = small_extents(merged, 0)
    assert max(small.values()) < 48
    assert shrink(merged, small).sizes == small


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: F.conv2d(x, w, stride=2),
        lambda x, w: F.conv2d(x, w, stride=4, padding=2),
        lambda x, w: torch.einsum("bchw,dchw->bd", x[:, :, :4, :4], w),
    ],
    ids=["overlap", "padded", "plain"],
)
def test_other_matmuls_keep_their_dimensions(function):
    program = trace(function, torch.empty(2, 3, 8, 12), torch.empty(5, 3, 4, 4))
    assert with_merged_patches(program).sizes == program.sizes


def test_rows_of_what_windows_read_from_memory_stay_apart():
    def function(x, w):
        return F.conv2d(x.relu(), w, None, 1, 1, 1, 64)

    program = trace(function, torch.empty(16, 64, 56, 56), torch.empty(64, 1, 3, 3))
    assert with_merged_rows(program) == program


def _heads(x, w, b, n=3, d=6):
    """Queries, keys and values of one projection, each with its heads apart."""
    parts = torch.nn.functional.linear(x, w, b).chunk(3, dim=-1)
    return tuple(p.reshape(*x.shape[:2], n, d) for p in parts)


def _turned(x, w, b, n=3, d=6):
    """The same with the heads before the rows, in one tensor."""
    parts = torch.nn.functional.linear(x, w, b).reshape(*x.shape[:2], 3, n, d)
    return (parts.permute(2, 0, 3, 1, 4).contiguous(),)


@pytest.mark.parametrize(
    ("function", "extents"), [(_heads, [2, 5, 8, 18]), (_turned, [2, 5, 8, 54])]
)
def test_columns_that_are_heads_are_one(function, extents):
    data = torch.randn(2, 5, 8), torch.randn(54, 8), torch.randn(54)
    program = trace(function, *data)
    merged = with_merged_columns(program)
    validate_program(merged)
    assert sorted(merged.sizes.values()) == extents  # rows of x are two axes, and stay so
    assert [o.tensor for o in merged.outputs] == [o.tensor for o in program.outputs]
    loads = [n.access for n in merged.nodes if n.op == "load"]
    assert all(e.op in ("dim", "add") for a in loads for e in a.index)
    given = {t.name: d.double().numpy() for t, d in zip(program.inputs, data, strict=True)}
    found = evaluate_program(merged, given, FloatMeaning())
    for got, want in zip(found.values(), function(*(d.double() for d in data)), strict=True):
        np.testing.assert_allclose(got, want.numpy(), atol=1e-12)


def test_columns_of_heads_that_tiles_cover_are_one_as_a_tile_has_more_of_them():
    def function(x, w):
        return F.linear(x, w).reshape(2, 5, 3, 64).transpose(1, 2).contiguous()

    program = trace(function, torch.empty(2, 5, 8), torch.empty(192, 8))
    assert sorted(with_merged_columns(program).sizes.values()) == [2, 5, 8, 192]


@pytest.mark.parametrize(
    ("heads", "size"),
    [
        (lambda x: x.softmax(-1), 6),  # one is reduced
        (lambda x: x * torch.arange(6.0), 6),  # one is told apart by its number
        (lambda x: x * 2.0, 256),  # tiles leave nothing, and have no more
        (lambda x: x - x[:, :, :, :1], 6),  # a value has one alone
    ],
)
def test_columns_that_something_tells_apart_stay_two(heads, size):
    def columns(x, w):
        return heads(F.linear(x, w).reshape(2, 5, 3, size))

    program = trace(columns, torch.randn(2, 5, 8), torch.randn(3 * size, 8))
    assert with_merged_columns(program) == program


def _grouped(x, g, inner):
    """An elementwise function of channels in groups of four, beside what ``inner`` is of these."""
    groups = x.unflatten(1, (3, 4))
    return (groups.sigmoid() * inner(groups)).flatten(1, 2) * g[:, None]


def test_groups_that_nothing_tells_apart_are_one_axis():
    data = torch.randn(2, 12, 5), torch.randn(12)
    program = trace(lambda x, g: _grouped(x, g, torch.exp), *data)
    assert sorted(program.sizes.values()) == [2, 3, 4, 5]
    merged = with_merged_axes(program)
    validate_program(merged)
    assert sorted(merged.sizes.values()) == [2, 5, 12]
    given = {t.name: d.double().numpy() for t, d in zip(program.inputs, data, strict=True)}
    (found,) = evaluate_program(merged, given, FloatMeaning()).values()
    want = _grouped(*(d.double() for d in data), torch.exp).numpy()
    np.testing.assert_allclose(found, want, atol=1e-12)


@pytest.mark.parametrize(
    "inner",
    [
        lambda x: x.mean(2, keepdim=True),
        lambda x: x.flip(2),
        lambda x: x * torch.arange(4.0)[:, None],
    ],
    ids=["mean", "order", "number"],
)
def test_groups_that_something_tells_apart_are_two_axes(inner):
    program = trace(lambda x, g: _grouped(x, g, inner), torch.randn(2, 12, 5), torch.randn(12))
    assert with_merged_axes(program) == program


def _normalised(x, w, normal):
    return normal(x, x.mean((2, 3), keepdim=True)).flatten(2).transpose(1, 2) @ w


@pytest.mark.parametrize(
    ("normal", "sizes"),
    [(torch.sub, [2, 7, 30]), (lambda x, mean: x, [2, 5, 6, 7])],
    ids=["computed", "as it is"],
)
def test_rows_of_matmuls_are_one_where_they_are_computed(normal, sizes):
    """TMA takes axes of a tensor that a matmul reads as it is."""
    data = torch.randn(2, 3, 5, 6), torch.randn(3, 7)
    program = trace(lambda x, w: (_normalised(x, w, normal), x.mean((2, 3))), *data)
    merged = with_merged_reductions(program)
    validate_program(merged)
    assert sorted(merged.sizes[d] for d in merged.nodes[merged.outputs[0].node].dims) == sizes
    given = {t.name: d.double().numpy() for t, d in zip(program.inputs, data, strict=True)}
    found = evaluate_program(merged, given, FloatMeaning())
    want = _normalised(*(d.double() for d in data), normal).numpy()
    np.testing.assert_allclose(next(iter(found.values())), want, atol=1e-12)


def test_columns_that_attention_reads_by_other_names_stay_two():
    def keys_and_scores(x, w):
        keys = F.linear(x, w).reshape(2, 5, 3, 64).transpose(1, 2)
        return keys, (keys @ keys.transpose(2, 3)).softmax(-1)

    program = trace(keys_and_scores, torch.empty(2, 5, 8), torch.empty(192, 8))
    assert with_merged_columns(program) == program
