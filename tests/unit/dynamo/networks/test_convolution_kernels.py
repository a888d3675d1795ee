"""Convolutions as kernels in an ATen graph: what they take in, and that values stay."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from mirage_py.dynamo.networks.convolution_kernels import Match, matches, with_kernels
from mirage_py.dynamo.networks.convolution_times import Timed, library_ways
from mirage_py.runtime.launch import fused_convolution
from mirage_py.runtime.launch.convolutions.weights import weight_form
from mirage_py.search.networks.convolutions.tiles import ranked_tiles
from mirage_py.targets import target
from mirage_py.ugraph.ir.convolution import (
    ConvolutionPlan,
    ConvolutionTiles,
    FusedConvolution,
    LibraryConvolution,
)

F = nn.functional
H200 = target("h200")


def _weights(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).to(torch.bfloat16)


class Network(nn.Module):
    """Siblings as one convolution whose pieces have terms and relus, a slice that is read by a
    grouped one, a residual sum, a relu that only a convolution reads, a sum of two convolutions.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.siblings = _weights(28, 8, 1, 1)
        self.terms = _weights(12, 1, 1), _weights(16, 1, 1)
        self.grouped, self.bias = _weights(12, 3, 3, 3), _weights(12)
        self.one, self.two = _weights(8, 12, 3, 3), _weights(8, 16, 1, 1)
        self.last = _weights(8, 16, 3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outer = F.conv2d(x, self.siblings).split([12, 16], 1)
        left, right = (F.relu(part + term) for part, term in zip(outer, self.terms, strict=True))
        left = F.relu(F.conv2d(left, self.grouped, self.bias, padding=1, groups=4) + left)
        both = F.conv2d(left, self.one, padding=1) + F.conv2d(right, self.two)
        whole = F.relu(torch.cat([F.relu(both), x], 1))
        return F.conv2d(F.relu(whole.sigmoid()), self.last, stride=2)


def _traced(x: torch.Tensor) -> tuple[GraphModule, nn.Module]:
    model = Network()
    return make_fx(model, tracing_mode="fake", _allow_non_fake_inputs=True)(x), model


@pytest.fixture(scope="module")
def image() -> torch.Tensor:
    torch.manual_seed(1)
    return _weights(2, 8, 7, 7).contiguous(memory_format=torch.channels_last)


def _with_kernels(image: torch.Tensor) -> tuple[GraphModule, nn.Module, list[Match], int]:
    module, model = _traced(image)
    found = matches(module, {})
    count = with_kernels(module, found, {m.spec: ranked_tiles(m.spec, H200, 3)[-1] for m in found})
    return module, model, found, count


def test_values_stay_and_little_is_left_around_the_kernels(image: torch.Tensor) -> None:
    module, model, found, count = _with_kernels(image)
    want, got = model(image), module(image)
    torch.testing.assert_close(got, want, rtol=0.05, atol=0.25)
    assert got.stride() == want.stride()
    assert count == len(found) == 5
    left = [str(n.target) for n in module.graph.nodes if n.op == "call_function"]
    assert "aten.convolution.default" not in left
    assert "aten.add.Tensor" not in left
    assert left.count("aten.relu.default") == 1  # of x, which no kernel made


def test_what_is_around_a_convolution_is_in_its_kernel(image: torch.Tensor) -> None:
    _, _, found, _ = _with_kernels(image)
    siblings, grouped, one, two, last = (m.spec for m in found)
    assert (siblings.has_bias, siblings.relu_after) == (True, True)
    assert (grouped.pitch, grouped.offset, grouped.groups) == (28, 0, 4)
    assert (grouped.has_bias, grouped.has_residual, grouped.residual_pitch) == (True, True, 28)
    assert (one.has_residual, one.relu_after) == (True, True)
    assert (two.has_residual, two.pitch, two.offset) == (False, 28, 12)
    assert (last.relu_before, last.stride) == (True, (2, 2))


@pytest.mark.parametrize("is_fused", [False, True])
def test_ways_of_the_library_are_in_the_same_places(image: torch.Tensor, is_fused: bool) -> None:
    module, model = _traced(image)
    found = matches(module, {})
    assert with_kernels(module, found, {m.spec: LibraryConvolution(is_fused) for m in found}) == 5
    want, got = model(image), module(image)
    torch.testing.assert_close(got, want, rtol=0.05, atol=0.25)
    assert got.stride() == want.stride()


def test_a_bias_that_is_seen_through_views_is_taken_in(image: torch.Tensor) -> None:
    weight, bias = _weights(12, 8, 3, 3), _weights(12)

    def model(x: torch.Tensor) -> torch.Tensor:
        return F.relu(F.conv2d(x, weight, padding=1) + bias.unsqueeze(0).view(1, 12, 1, 1))

    module = make_fx(model, tracing_mode="fake", _allow_non_fake_inputs=True)(image)
    (match,) = matches(module, {})
    assert (match.spec.has_bias, match.spec.relu_after) == (True, True)
    assert with_kernels(module, [match], {match.spec: ranked_tiles(match.spec, H200, 1)[0]})
    torch.testing.assert_close(module(image), model(image), rtol=0.05, atol=0.1)
    left = [str(n.target) for n in module.graph.nodes if n.op == "call_function"]
    assert left == ["mirage_py.fused_convolution.default"]


@pytest.mark.parametrize("is_library", [False, True])
def test_convolutions_along_three_axes_are_taken(
    is_library: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a GPU: some processors have no convolution of bfloat16 that keeps channels last.
    monkeypatch.setattr(
        torch._C, "_conv_determine_backend_memory_format", lambda *_: torch.channels_last_3d
    )
    weight, bias, other = _weights(8, 8, 3, 3, 3), _weights(8), _weights(16, 8, 1, 2, 2)

    def model(x: torch.Tensor) -> torch.Tensor:
        y = F.relu(F.conv3d(x, weight, bias, padding=1) + x)
        return F.conv3d(y, other, stride=(2, 1, 2)) + bias.repeat(2)[:, None, None, None]

    video = _weights(2, 8, 4, 5, 6).contiguous(memory_format=torch.channels_last_3d)
    module = make_fx(model, tracing_mode="fake", _allow_non_fake_inputs=True)(video)
    first, last = matches(module, {})
    assert first.spec.window == (3, 3, 3)
    assert (first.spec.has_bias, first.spec.has_residual, first.spec.relu_after) == (True,) * 3
    assert last.spec.sliding[0] == (2, 1, 2)
    plans: dict[FusedConvolution, ConvolutionPlan] = {
        m.spec: LibraryConvolution(is_fused=False)
        if is_library
        else ranked_tiles(m.spec, H200, 1)[0]
        for m in (first, last)
    }
    assert with_kernels(module, [first, last], plans) == 2
    want, got = model(video), module(video)
    torch.testing.assert_close(got, want, rtol=0.05, atol=0.25)
    assert got.is_contiguous(memory_format=torch.channels_last_3d)


def test_a_kernel_of_ours_where_it_pays_else_the_library_s_way() -> None:
    tiles, library = ConvolutionTiles(16, 16, 16), LibraryConvolution(is_fused=True)
    assert Timed(tiles, 5.0, 6.0, library=library).plan == tiles
    assert Timed(tiles, 6.0, 5.0, library=library).plan == library
    assert Timed(tiles, 6.0, 5.0).plan is None
    assert Timed(None, float("inf"), 5.0, "refused", library).plan == library


def test_the_library_is_tuned_for_what_takes_long() -> None:
    small = FusedConvolution(1, 16, 5, 5, 16, (3, 3), has_bias=True, relu_after=True)
    large = FusedConvolution(16, 256, 56, 56, 256, (3, 3), has_bias=True, relu_after=True)
    assert library_ways(small, H200) == [LibraryConvolution(False)]
    tuned = LibraryConvolution(is_fused=False, is_tuned=True)
    fused = LibraryConvolution(is_fused=True)
    assert library_ways(large, H200) == [LibraryConvolution(False), tuned, fused]
    assert fused not in library_ways(replace(large, relu_after=False), H200)
    assert not library_ways(replace(large, relu_before=True), H200)
    places = FusedConvolution(16, 256, 56, 56, 64, (1, 1), has_bias=True, relu_after=True)
    assert LibraryConvolution(is_fused=False, is_product=True) in library_ways(places, H200)
    assert not library_ways(replace(large, has_bias=False, relu_after=False), H200)


def test_what_changes_or_lies_otherwise_is_left(image: torch.Tensor) -> None:
    weight = _weights(4, 8, 3, 3)
    plain = image.contiguous()
    for fn, given in (
        (F.conv2d, (image, weight)),
        (F.conv2d, (plain, weight)),
        (lambda x, w: F.conv2d(x.float(), w.float()), (image, weight)),
    ):
        module = make_fx(fn, tracing_mode="fake")(*given)
        constants = {} if given[0] is image else {"w_1": weight}
        assert not matches(module, constants)


def test_images_have_gradients(image: torch.Tensor) -> None:
    weight, bias = _weights(8, 8, 3, 3), _weights(8)

    def model(x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, weight, bias, padding=1) + x

    module = make_fx(model, tracing_mode="fake", _allow_non_fake_inputs=True)(image)
    found = matches(module, {})
    assert with_kernels(module, found, {m.spec: ranked_tiles(m.spec, H200, 1)[0] for m in found})
    want, got = image.detach().requires_grad_(), image.detach().requires_grad_()
    for fn, x in ((model, want), (module, got)):
        fn(x).float().sum().backward()
    assert want.grad is not None
    assert got.grad is not None
    torch.testing.assert_close(got.grad, want.grad, rtol=0.05, atol=0.1)


@pytest.mark.parametrize("has_residual", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("relu_after", [False, True])
def test_a_convolution_of_single_places_is_a_product_of_the_library(
    has_residual: bool, has_bias: bool, relu_after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a slice of channels; what stands around is in the product or in one kernel after it."""
    launched = []
    monkeypatch.setattr(
        fused_convolution, "source_launcher", lambda *_: lambda *a: launched.append(a)
    )
    spec = FusedConvolution(2, 16, 5, 6, 24, (1, 1), pitch=40, offset=8, has_bias=has_bias,
                            has_residual=has_residual, relu_after=relu_after)  # fmt: skip
    plan = LibraryConvolution(is_fused=False, is_product=True)
    run = fused_convolution._library_runner(spec, plan, 0)
    x = torch.randn(2, 5, 6, 40).movedim(-1, 1)[:, 8:24]
    weight, bias = torch.randn(24, 16, 1, 1), torch.randn(24) if has_bias else None
    residual = torch.randn(2, 5, 6, 24).movedim(-1, 1) if has_residual else None
    is_after = has_residual or (relu_after and not has_bias)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: SimpleNamespace(cuda_stream=0))
    got = run(x, weight_form(spec, plan).packed(weight), bias, residual)
    assert len(launched) == is_after
    want = torch.nn.functional.conv2d(x, weight, None if is_after else bias)
    want = want.relu() if relu_after and not is_after else want
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert got.is_contiguous(memory_format=torch.channels_last)
