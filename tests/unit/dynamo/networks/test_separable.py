"""Depthwise and pointwise convolutions as one kernel: what is a pair, and that values stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from mirage_py.dynamo.networks import convolution_times, rewriting
from mirage_py.dynamo.networks.convolution_kernels import Match, matches, with_kernels
from mirage_py.dynamo.networks.convolution_times import Timed
from mirage_py.dynamo.networks.separable import chosen_pairs, pairs, without_pairs
from mirage_py.search.networks.convolutions.tiles import least_us, modelled_ns, ranked_tiles
from mirage_py.search.networks.convolutions.window_tiles import window_tiles
from mirage_py.targets import target
from mirage_py.ugraph.ir.convolution import ConvolutionTiles, FusedConvolution

F = nn.functional
H200 = target("h200")
Function = Callable[[torch.Tensor], torch.Tensor]


def _drawn(*shape: int) -> torch.Tensor:
    torch.manual_seed(sum(shape))
    return torch.randint(-2, 3, shape).to(torch.bfloat16)


_DEEP, _POINT, _TERM = _drawn(12, 1, 3, 3), _drawn(20, 12, 1, 1), _drawn(20, 1, 1)
_IMAGE = _drawn(2, 12, 7, 6).contiguous(memory_format=torch.channels_last)
_MORE = _drawn(2, 20, 7, 6).contiguous(memory_format=torch.channels_last)


def _deep(x: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, _DEEP, padding=1, groups=12)


def _whole(x: torch.Tensor) -> torch.Tensor:
    return F.relu(F.conv2d(_deep(F.relu(x.neg())), _POINT) + _TERM + _MORE)


def _beside(y: torch.Tensor) -> torch.Tensor:
    return torch.cat([F.conv2d(y, _POINT), y.neg()], 1)


def _found(function: Function, x: torch.Tensor = _IMAGE) -> tuple[GraphModule, list[Match]]:
    module = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(x)
    return module, matches(module, {})


def test_a_pair_is_one_kernel_with_what_is_around_both() -> None:
    module, found = _found(_whole)
    (pair,) = both = pairs(found)
    spec = pair.whole.spec
    assert (spec.relu_before, spec.has_bias, spec.has_residual, spec.relu_after) == (True,) * 4
    assert (spec.inputs, spec.results, spec.is_separable) == (12, 20, True)
    left = without_pairs(found, both)
    assert left == [pair.whole]
    assert with_kernels(module, left, {spec: ranked_tiles(spec, H200, 1)[0]}) == 1
    assert torch.equal(module(_IMAGE), _whole(_IMAGE))
    names = [str(n.target) for n in module.graph.nodes if n.op == "call_function"]
    assert names == ["aten.neg.default", "mirage_py.fused_convolution.default"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.conv2d(F.relu(_deep(x)), _POINT),
        lambda x: F.conv2d(_deep(x) + _drawn(12, 1, 1), _POINT),
        lambda x: _beside(_deep(x)),
        lambda x: F.conv2d(_deep(x), _drawn(20, 12, 3, 3)),
        lambda x: F.conv2d(_deep(x), _POINT, stride=2),
        lambda x: F.conv2d(F.avg_pool2d(x, 3, 1, 1), _POINT),
        lambda x: F.conv2d(F.conv2d(x, _drawn(12, 3, 3, 3), groups=4), _POINT),
    ],
)
def test_what_has_something_between_or_beside_is_no_pair(function: Function) -> None:
    assert not pairs(_found(function)[1])


def test_a_pair_is_taken_where_it_is_faster_than_two_kernels_of_any_kind() -> None:
    _, found = _found(_whole)
    (pair,) = both = pairs(found)
    tiles = ranked_tiles(pair.whole.spec, H200, 1)[0]

    def chosen(whole_us: float, library_us: float = 20.0) -> bool:
        times = {
            pair.deep.spec: Timed(tiles, 9.0, 5.0),
            pair.point.spec: Timed(tiles, 4.0, 8.0),
            pair.whole.spec: Timed(tiles, whole_us, library_us),
        }
        return bool(chosen_pairs(both, times))

    assert chosen(8.9)
    assert not chosen(9.1)
    assert not chosen(8.9, 8.0)
    assert without_pairs(found, []) == found


@pytest.mark.parametrize("is_faster", [True, False])
def test_a_graph_gets_the_faster_of_both(is_faster: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(specs: list[FusedConvolution], *_: object) -> dict[FusedConvolution, Timed]:
        # Two kernels take 6 us each, one for both less or more than that.
        return {
            s: Timed(
                (window_tiles(s, H200, 1) or ranked_tiles(s, H200, 1))[0],
                (11.0 if is_faster else 13.0) if s.is_separable else 6.0,
                20.0,
            )
            for s in specs
        }

    monkeypatch.setattr(convolution_times, "convolution_times", timed)
    monkeypatch.setattr(rewriting, "make_counters", lambda _: None)
    module, _ = _found(_whole)
    lines = rewriting._kernels(module, {}, H200, torch.device("cpu"))
    assert ("1 depthwise convolutions are in the kernels of pointwise ones" in lines) == is_faster
    names = [str(n.target) for n in module.graph.nodes if n.op == "call_function"]
    assert names.count("mirage_py.fused_convolution.default") == (1 if is_faster else 2)
    assert torch.equal(module(_IMAGE), _whole(_IMAGE))


def test_tiles_have_all_channels_and_results() -> None:
    spec = FusedConvolution(16, 44, 56, 56, 44, (3, 3), padding=(1, 1), groups=44, has_bias=True,
                            is_separable=True)  # fmt: skip
    ranked = ranked_tiles(spec, H200, 6)
    assert {(t.columns, t.depth, t.pack, t.splits) for t in ranked} == {(64, 64, 44, 1)}
    times = [modelled_ns(spec, t, H200) for t in ranked]
    assert times == sorted(times)
    assert least_us(spec, H200) == times[0] / 1e3
    assert isinstance(ranked[0], ConvolutionTiles)
