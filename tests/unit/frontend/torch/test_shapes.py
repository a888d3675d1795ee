from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch.trace import trace


def of_reshapes(x: Tensor):
    return (
        x.view(15, 7) * 1,
        x.reshape(-1) + 1,
        x.flatten(1) * 2,
        x.view(3, 5, 7, 1) * x[..., None],
        x.reshape(5, 21) - 1,
        x.unflatten(0, (3, 1)) * 3,
    )


def of_permutations(x: Tensor):
    return (
        x.transpose(0, 2) + 1,
        x.permute(2, 0, 1) * 2,
        x[0].t() + x[1].T,
        x.mT * 1,
        x.movedim(0, 1) + 0.5,
    )


def of_parts(x: Tensor):
    a, b = x.split(4, -1)
    c, d, e = x.split([1, 3, 1], dim=1)
    f, g = x.chunk(2, 2)
    h, i, j = x.unbind(0)
    return (
        *(
            x[1:, :, ::2] * 1,
            x[..., -1] + 1,
            x[0, 2:4] * 2,
            x.narrow(1, 1, 3) + 1,
            x.select(2, -2) * 1,
        ),
        *(a.sum(), b * 2, c + d.sum(1, keepdim=True), e * 3, f.sum(-1) + g.sum(-1), h * i + j),
        x[-2:, None, 3] * 1,
    )


def of_joins(x: Tensor, y: Tensor):
    return (
        torch.cat([x, y], 1),
        torch.cat([x, y[:1], x * 2]),
        torch.stack([x, y]),
        torch.stack([x, y], -1).flatten(-2),
        torch.cat((-x[..., 3:], x[..., :3]), -1),
        torch.cat([x[..., :1], y[..., :1]], -1),
    )


def of_repetitions(x: Tensor):
    return (
        x[:, :1].expand(-1, 4, -1) + 1,
        x[0].expand(2, 5, 7) * 2,
        x.repeat(2, 1, 3) * x.repeat(2, 1, 3),
        x.repeat_interleave(3, dim=1) - 1,
        x.repeat_interleave(2) + 0.5,
        torch.tile(x, (2,)) + 1,
        x.squeeze() + x.unsqueeze(1).squeeze(1),
    )


@pytest.mark.parametrize("fn", [of_reshapes, of_permutations, of_parts, of_repetitions])
def test_views(agrees, x, fn):
    agrees(fn, x)


def test_joins(agrees, x, y):
    agrees(of_joins, x, y)


def test_axes_that_cut_across_each_other(agrees):
    agrees(lambda a: a.reshape(4, 9) @ a.reshape(9, 4), torch.randn(6, 6))


def test_axes_of_extent_one(agrees):
    x = torch.randn(1, 4, 1)
    agrees(lambda a: (a.squeeze(), a.squeeze(0) * 2, a.view(4) + 1, a.expand(3, 4, 2) * a)[1:], x)


def test_views_cost_address_arithmetic_only(agrees):
    traced = agrees(
        lambda a: a.view(2, 3, 4).transpose(1, 2).reshape(2, 12) * 2, torch.randn(2, 12)
    )
    assert [n.op for n in traced.program.nodes] == ["load", "const", "mul"]


@pytest.mark.parametrize("layout", ["transposed", "sliced", "expanded"])
def test_strided_inputs(agrees, layout):
    base = torch.randn(6, 8)
    x = {"transposed": base.T, "sliced": base[::2, 1:7], "expanded": base[:1].expand(5, 8)}[layout]
    traced = agrees(lambda a: torch.softmax(a * 2, -1), x)
    assert traced.program.inputs[0].element_strides == x.stride()


def test_writes_to_a_copy_are_fine(agrees):
    def fn(a: Tensor):
        b = a.clone()
        b.add_(1).mul_(2)
        return b

    agrees(fn, torch.randn(3, 4))


@pytest.mark.parametrize(("start", "end"), [(0, 3), (2, 5), (1, 9223372036854775807), (-3, 6)])
def test_the_gradient_of_a_slice(agrees, start, end):
    extent = len(range(6)[start : min(end, 6)])
    agrees(
        lambda x: torch.ops.aten.slice_backward.default(x * 2, [3, 6], 1, start, end, 1),
        torch.randn(3, extent),
    )


@pytest.mark.parametrize("pad", [(1, 2), (0, 3), (1, 0, 2, 1), (-1, 2), (0, -2, 1, 1)])
def test_padding(agrees, pad):
    agrees(lambda x: torch.nn.functional.pad(x, pad, value=0.5), torch.randn(3, 5))


def of_moved_axes(x: Tensor):
    return (
        x.flip(-1) * 2,
        x.flip(0, 2) + x,
        x.roll(2, 1) + 1,
        x.roll((-1, 9, 0), (0, 2, 1)) + 1,
        x.roll(5) * 2,
        (x * x).transpose(0, 1).flip(1).roll(3, 0),
        x.reshape(15, 7).flip(0).reshape(5, 21) * 2,
        x[:, :1].flip(1) + 0,
        torch.rot90(x, 1, (1, 2)) + 0,
    )


def test_axes_that_are_turned_or_moved_around(agrees, x):
    traced = agrees(of_moved_axes, x)
    assert {n.op for n in traced.program.nodes} <= {"load", "const", "mul", "add", "square"}


@pytest.mark.parametrize(("size", "step"), [(7, 7), (3, 3), (3, 2), (2, 3), (5, 1)])
def test_windows_as_a_view(agrees, x, size, step):
    """Side by side, with gaps and overlapping, of what is loaded and of what is computed."""
    agrees(lambda x: x.unfold(-1, size, step) * 2, x)
    agrees(lambda x: (x * x).unfold(2, size, step).sum(-1), x)


def test_patches(agrees):
    image = torch.randn(2, 3, 8, 8)
    agrees(lambda x: x.unfold(2, 4, 4).unfold(3, 4, 4).reshape(2, -1, 48) @ x.reshape(2, 48, 4),
           image)  # fmt: skip


@pytest.mark.parametrize("place", [(0, 0, 1), (2, 0, 1), (-1, 1, 0), (1, -1, 0), (-3, 0, -1)])
@pytest.mark.parametrize("shape", [(4, 6), (4, 5, 3), (5, 1, 4)])
def test_diagonals(agrees, place, shape):
    x = torch.randn(shape)
    if x.diagonal(*place).numel():
        agrees(lambda x: torch.diagonal(x, *place) * 2, x)


def test_the_trace_of_a_matrix(agrees):
    agrees(lambda x: x.diagonal(dim1=-2, dim2=-1).sum(-1), torch.randn(3, 4, 4))


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("pad", [(2, 3), (0, 1), (2, 0, 1, 3), (-1, 2, 1, -3), (0, 1, 1, 3, 2, 2)])
def test_margins_of_elements(agrees, pad, mode):
    x = torch.randn((2, 3, 8, 9, 4)[: len(pad) // 2 + 2])
    agrees(lambda x: torch.nn.functional.pad(x, pad, mode=mode) * 2, x)


def test_a_join_leaves_out_what_is_empty(agrees):
    x = torch.randn(2, 3, 4)
    agrees(lambda x: torch.cat([torch.tensor([]), x], -2) * 2, x)
    agrees(lambda x: torch.cat([x[:, :0], x, x[..., 4:, :] * 3, -x], -2), x)
    agrees(lambda x: torch.cat([x[..., :4] * x.cos(), x[..., 4:]], -1), x)


def overlapping(x, half: int):
    rows, length, width = x.shape
    return x.as_strided(
        (rows, length // half - 1, 2 * half, width), (length * width, half * width, width, 1)
    )


def test_strides(agrees):
    agrees(lambda x: overlapping(x, 4) * 2, torch.randn(3, 16, 5))
    agrees(lambda x: torch.einsum("bcxd,bcyd->bcxy", overlapping(x.exp(), 2), overlapping(x, 2)),
           torch.randn(2, 8, 3))  # fmt: skip
    agrees(lambda x: x.as_strided((3, 1, 4), (2, 7, 1), 3).sum(0), torch.randn(16))
    for fn in (lambda x: x.t().as_strided((3,), (1,)), lambda x: x[1:].as_strided((3,), (1,))):
        with pytest.raises(UnsupportedError, match="in a row"):
            trace(lambda x, fn=fn: fn(x) * 2, torch.randn(4, 4))
