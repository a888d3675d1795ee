"""Pools and depthwise convolutions of ATen graphs as kernels over windows: values stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from mirage_py.dynamo.networks.convolution_kernels import Match, matches, with_kernels
from mirage_py.dynamo.networks.convolution_times import library_ways
from mirage_py.search.networks.convolutions.window_tiles import window_tiles
from mirage_py.targets import target
from mirage_py.ugraph.ir.convolution import ConvolutionPlan, FusedConvolution, LibraryConvolution

F = nn.functional
H200 = target("h200")
LAST = torch.channels_last
Function = Callable[[torch.Tensor], torch.Tensor]


def _drawn(*shape: int, last: bool = False) -> torch.Tensor:
    torch.manual_seed(0)
    made = torch.randint(-3, 4, shape).to(torch.bfloat16)
    return made.contiguous(memory_format=LAST) if last else made


def _kernels(function: Function, x: torch.Tensor) -> tuple[list[Match], list[str]]:
    """What was found, and the operators that are left with kernels over windows; results are held
    to those of the function.
    """
    module = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(x)
    found = matches(module, {})
    plans: dict[FusedConvolution, ConvolutionPlan] = {
        m.spec: window_tiles(m.spec, H200, 1)[0] for m in found
    }
    assert with_kernels(module, found, plans) == len(found)
    want, got = function(x), module(x)
    torch.testing.assert_close(got, want, rtol=2**-7, atol=2**-7)
    assert got.stride() == want.stride()
    return found, [str(n.target) for n in module.graph.nodes if n.op == "call_function"]


_KERNEL = "mirage_py.fused_convolution.default"
_DEEP = _drawn(11, 1, 3, 3)
_TERM = _drawn(11, 1, 1)


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x: F.max_pool2d(x, 3, 2, 1), "max"),
        (lambda x: F.relu(F.max_pool2d(x, 3, 1, 1) + x), "max"),
        (lambda x: F.max_pool2d(x, (2, 3), dilation=2), "max"),
        (lambda x: F.avg_pool2d(x, 3, 1, 1) + x, "mean"),
        (lambda x: F.relu(F.avg_pool2d(x, 2) + _TERM), "mean"),
        (lambda x: F.relu(F.conv2d(F.relu(x.neg()), _DEEP, padding=1, groups=11) + x), ""),
        (lambda x: F.conv2d(x, _DEEP, stride=2, groups=11) + _TERM, ""),
    ],
)
def test_what_is_around_is_in_the_kernel(function: Function, kind: str, last: bool) -> None:
    found, left = _kernels(function, _drawn(2, 11, 9, 8, last=last))
    (match,) = found
    assert match.spec.pool == kind
    assert match.spec.is_planar == (not last)
    assert left == (["aten.neg.default"] if match.spec.relu_before else []) + [_KERNEL]


@pytest.mark.parametrize("last", [True, False])
def test_slices_are_read_where_they_are(last: bool) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        right = x[:, 4:]
        return F.max_pool2d(right, 3, 1, 1) + right

    (match,), _ = _kernels(function, _drawn(2, 15, 6, 6, last=last))
    spec = match.spec
    assert (spec.pitch, spec.offset, spec.residual_pitch, spec.residual_offset) == (15, 4, 15, 4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.max_pool2d(x[:1].expand(3, -1, -1, -1), 3, 1, 1),
        lambda x: F.max_pool2d(x[:, :, :1, :1].expand(-1, -1, 5, 5), 3, 1, 1),
        lambda x: F.conv2d(x[:1, :, :1, :1].expand(2, -1, 5, 5), _DEEP, groups=11),
        lambda x: F.max_pool2d(torch.as_strided(x, (2, 4, 6, 6), (396, 1, 66, 11), 9), 3),
        lambda x: F.max_pool2d(torch.as_strided(x, (2, 4, 6, 6), (396, 36, 6, 1), 324), 3),
        lambda x: F.max_pool2d(x[:0], 3, 1, 1),
    ],
)
@pytest.mark.parametrize("last", [True, False])
def test_places_that_are_no_slice_or_none_are_left(function: Function, last: bool) -> None:
    """Expanded images, channels that run into the next place's, and no places at all."""
    module = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(
        _drawn(3, 11, 6, 6, last=last)
    )
    assert not matches(module, {})


def test_an_expanded_term_is_added() -> None:
    """It is copied as it is read."""
    found, _ = _kernels(
        lambda x: F.avg_pool2d(x, 3, 1, 1) + x[:1].expand(2, -1, -1, -1), _drawn(2, 11, 5, 6)
    )
    assert [m.spec.has_residual for m in found] == [True]


def test_a_sum_of_a_convolution_and_a_pool_is_the_convolution_s() -> None:
    weight = _drawn(11, 11, 1, 1)

    def function(x: torch.Tensor) -> torch.Tensor:
        return F.relu(F.avg_pool2d(x, 3, 1, 1) + F.conv2d(x, weight))

    module = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(
        _drawn(1, 11, 5, 5, last=True)
    )
    convolution, pool = matches(module, {})
    assert (convolution.spec.has_residual, convolution.spec.relu_after) == (True, True)
    assert pool.spec.is_bare


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
        lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True),
        lambda x: F.avg_pool2d(x, 3, divisor_override=5),
        lambda x: torch.cat(F.max_pool2d(x, 2, return_indices=True), 1),
        lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
        lambda x: F.max_pool2d(x.float(), 3),
        lambda x: F.avg_pool2d(x, (1, 1), 2),
    ],
)
def test_other_pools_are_left(function: Function) -> None:
    module = make_fx(function, tracing_mode="fake")(_drawn(1, 11, 10, 10, last=True))
    assert not matches(module, {})


def test_the_library_has_no_kernel_after_a_pool_or_a_planar_image() -> None:
    spec = FusedConvolution(2, 8, 9, 9, 8, (3, 3), groups=8, has_bias=True)
    assert library_ways(spec, H200) == [LibraryConvolution(is_fused=False)]
    pool = FusedConvolution(2, 8, 9, 9, 8, (3, 3), groups=8, has_bias=True, pool="max")
    planar = FusedConvolution(2, 8, 9, 9, 8, (3, 3), groups=8, has_bias=True, is_planar=True)
    assert library_ways(pool, H200) == library_ways(planar, H200) == []
