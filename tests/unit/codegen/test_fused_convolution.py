"""Fused convolutions in Triton's interpreter: whole numbers, of which every sum is exact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from interpreted import in_interpreter

from mirage_py.codegen.triton.fused_convolution import NAME, emit_fused_convolution
from mirage_py.errors import ScheduleError
from mirage_py.runtime.base.modules import load_module
from mirage_py.runtime.cpu import interpreter_service
from mirage_py.runtime.launch.convolutions.weights import weight_form
from mirage_py.runtime.launch.fused_convolution import new_result, reference
from mirage_py.ugraph.ir.convolution import (
    ConvolutionTiles,
    FusedConvolution,
    plan_text,
    read_plan,
)

_SMALL = FusedConvolution(1, 16, 5, 5, 16, (3, 3), padding=(1, 1), dtype="f16")
_TILES = ConvolutionTiles(16, 16, 16)
# A whole tap a step and parts of taps; splits that share a tile, one of them without a step;
# strides, dilations and uneven kernels; packs of groups; slices of channels; places beyond a tile.
CASES = {
    "taps": (replace(_SMALL, has_bias=True, relu_after=True), _TILES),
    "splits": (
        FusedConvolution(2, 16, 5, 4, 24, (3, 2), (2, 1), (1, 0), (1, 2), 1, "f16",
                         relu_before=True, has_residual=True),
        ConvolutionTiles(32, 16, 32, splits=4),
    ),
    "product": (
        FusedConvolution(1, 12, 5, 5, 20, (1, 1), dtype="f16", has_bias=True, has_residual=True,
                         relu_after=True, pitch=36, offset=12, residual_pitch=44,
                         residual_offset=20),
        ConvolutionTiles(16, 32, 16, splits=2),
    ),
    "groups": (
        FusedConvolution(1, 32, 4, 4, 32, (3, 3), (2, 2), (1, 1), groups=4, dtype="f16"),
        ConvolutionTiles(16, 16, 32, pack=2),
    ),
    "depthwise slice": (
        FusedConvolution(1, 10, 5, 5, 10, (5, 5), padding=(2, 2), groups=10, dtype="f16",
                         relu_before=True, pitch=24, offset=6),
        ConvolutionTiles(16, 16, 16, pack=10),
    ),
    # Sums of single channels and a pointwise convolution: slices, strides, more results than
    # channels and fewer, odd ones.
    "separable": (
        FusedConvolution(2, 20, 5, 6, 20, (5, 5), padding=(2, 2), groups=20, dtype="f16",
                         relu_before=True, has_bias=True, relu_after=True, pitch=28, offset=4,
                         is_separable=True),
        ConvolutionTiles(16, 32, 32, pack=20),
    ),
    "separable, uneven": (
        FusedConvolution(1, 12, 7, 6, 37, (3, 2), (2, 1), (1, 0), (1, 2), 12, "f16",
                         has_residual=True, residual_pitch=50, residual_offset=8,
                         is_separable=True),
        ConvolutionTiles(32, 64, 16, pack=12),
    ),
    "separable, odd": (
        FusedConvolution(1, 17, 6, 6, 5, (3, 3), padding=(1, 1), groups=17, dtype="f16",
                         is_separable=True),
        ConvolutionTiles(16, 16, 32, pack=17),
    ),
    "separable, one by one": (
        FusedConvolution(1, 5, 4, 3, 8, (1, 1), groups=5, dtype="f16", is_separable=True),
        ConvolutionTiles(16, 16, 16, pack=5),
    ),
    # Frames: whole taps and parts of them, splits, a slice of channels, a pointwise one.
    "frames": (
        FusedConvolution.of((2, 16, 3, 4, 5), (16, 16, 3, 3, 3), ((1, 2, 1), (1, 1, 1), (1, 1, 1)),
                            1, "f16"),
        ConvolutionTiles(16, 16, 16, splits=2),
    ),
    "frames in parts": (
        replace(
            FusedConvolution.of((1, 6, 5, 4, 5), (20, 3, 2, 3, 1),
                                ((2, 1, 1), (1, 0, 1), (2, 1, 1)), 2, "f16"),
            has_bias=True, has_residual=True, relu_after=True, relu_before=True, pitch=16, offset=4,
        ),
        ConvolutionTiles(32, 16, 16, pack=2),
    ),
    "frames one by one": (
        replace(
            FusedConvolution.of((1, 16, 4, 3, 3), (24, 16, 1, 1, 1), ((1,) * 3, (0,) * 3, (1,) * 3),
                                1, "f16"),
            has_bias=True,
        ),
        ConvolutionTiles(16, 32, 16),
    ),
    "gelu": (
        replace(
            FusedConvolution.of((1, 16, 40, 1), (24, 16, 1, 1), ((1, 1), (0, 0), (1, 1)), 1, "f16"),
            has_bias=True, has_residual=True, gelu_after=True,
        ),
        ConvolutionTiles(16, 32, 16),
    ),
}  # fmt: skip


def drawn(*shape: int) -> torch.Tensor:
    return torch.randint(1, 4, shape).half() * (2 * torch.randint(0, 2, shape) - 1)


def image(
    spec: FusedConvolution, space: tuple[int, ...], channels: int, apart: int, offset: int
) -> tuple[torch.Tensor, torch.Tensor]:
    whole = drawn(spec.batch, *space, max(apart, offset + channels)).movedim(-1, 1)
    return whole, whole[:, offset : offset + channels]


def compare(task: Mapping[str, Any]) -> int:
    """In the interpreter: how many of the convolutions are right."""
    interpreter_service._mend_loop_bounds()
    torch.manual_seed(0)
    for text in task["texts"]:
        spec, tiles = read_plan(text)
        held, x = image(spec, spec.space, spec.inputs, spec.apart, spec.offset)
        w = drawn(*spec.weight_shape)
        image_read = (x.relu() if spec.relu_before else x).double()
        convolution = torch.nn.functional.conv3d if spec.has_frames else torch.nn.functional.conv2d
        if spec.is_separable:
            first = spec.inputs * spec.taps
            deep = w[:first].reshape(spec.inputs, 1, *spec.window).double()
            point = w[first:].reshape(spec.results, spec.inputs, 1, 1).double()
            want = convolution(image_read, deep, None, *spec.sliding, spec.groups)
            want = convolution(want, point)
        else:
            want = convolution(image_read, w.double(), None, *spec.sliding, spec.groups)
        given = [held, weight_form(spec, tiles).packed(w)]
        if spec.has_bias:
            given.append(drawn(spec.results))
            want = want + given[-1].double().reshape(-1, *(1,) * len(spec.space))
        if spec.has_residual:
            more = (spec.results, spec.residual_apart, spec.residual_offset)
            held, residual = image(spec, spec.out_space, *more)
            given.append(held)
            want = want + residual.double()
        if spec.relu_after:
            want = want.relu()
        if spec.gelu_after:
            want = torch.nn.functional.gelu(want)
        result = new_result(spec, x).fill_(float("nan"))
        arrived = torch.zeros(tiles.blocks(spec) // tiles.splits, dtype=torch.int32)
        given.append(result)
        if tiles.splits > 1:
            sums = tiles.blocks(spec) * tiles.rows * tiles.columns
            given += [torch.full((sums,), float("nan")), arrived]
        kernel = getattr(load_module(emit_fused_convolution(spec, tiles), NAME), NAME)
        kernel[(tiles.blocks(spec),)](*given)
        # A GELU of a whole number far below 0 is 0 or nearly so.
        near = 1e-4 if spec.gelu_after else 0.0
        assert ((result.double() - want.half().double()).abs() <= near).all(), text
        # What the operator computes without a GPU, over the packed weight.
        bias = given[2] if spec.has_bias else None
        more = residual if spec.has_residual else None
        again = reference(spec, tiles, x, given[1], bias, more)
        assert ((again.double() - want.half().double()).abs() <= near).all(), text
        assert not arrived.any()
    return len(task["texts"])


def test_each_result_is_that_of_float64() -> None:
    texts = [plan_text(spec, tiles) for spec, tiles in CASES.values()]
    assert all(read_plan(t) == case for t, case in zip(texts, CASES.values(), strict=True))
    found = in_interpreter(compare, "unit.codegen.test_fused_convolution", texts=texts)
    assert found == len(CASES)


@pytest.mark.parametrize(
    ("spec", "tiles", "why"),
    [
        (_SMALL, replace(_TILES, rows=24), "no powers of two"),
        (replace(_SMALL, groups=4), replace(_TILES, pack=3), "packs of 3"),
        (replace(_SMALL, dtype="f32"), _TILES, "f32"),
        (replace(_SMALL, groups=16, pool="max"), _TILES, "a pool"),
        (replace(_SMALL, is_planar=True), _TILES, "not last"),
        (
            replace(_SMALL, groups=16, is_separable=True),
            replace(_TILES, pack=16, splits=2),
            "neither split",
        ),
        (
            replace(_SMALL, inputs=20, groups=20, is_separable=True),
            replace(_TILES, pack=20),
            "not all channels",
        ),
        (replace(_SMALL, is_separable=True), _TILES, "single channels"),
        (replace(_SMALL, height=1 << 14, width=1 << 13), _TILES, "32 bits"),
        (replace(_SMALL, height=1, width=1, padding=(0, 0)), _TILES, "no window"),
    ],
)
def test_what_does_not_fit_is_refused(
    spec: FusedConvolution, tiles: ConvolutionTiles, why: str
) -> None:
    with pytest.raises(ScheduleError, match=why):
        emit_fused_convolution(spec, tiles)


def test_an_early_kernel_waits_before_it_touches_memory() -> None:
    text = emit_fused_convolution(_SMALL, replace(_TILES, splits=2, is_early=True))
    places = [text.index(word) for word in ("gdc_wait", "gdc_launch_dependents", "tl.load")]
    assert places == sorted(places)
    assert text.index("tl.store") > places[-1]
    assert "gdc" not in emit_fused_convolution(_SMALL, _TILES)
