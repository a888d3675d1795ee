"""Convolutions of the library with what stands around them, and products of ours, on a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from mirage_py.dynamo.networks.convolution_times import Check, convolution_times  # noqa: E402
from mirage_py.dynamo.serve.graph_target import graph_target  # noqa: E402
from mirage_py.ugraph.ir.convolution import FusedConvolution, LibraryConvolution  # noqa: E402

pytestmark = pytest.mark.gpu

_IMAGE = replace(
    FusedConvolution.of((2, 64, 14, 14), (96, 64, 3, 3), ((1, 1), (1, 1), (1, 1)), 1, "bf16"),
    has_bias=True,
    relu_after=True,
)
_VIDEO = replace(
    FusedConvolution.of((2, 32, 4, 14, 14), (64, 32, 3, 3, 3), ((1,) * 3,) * 3, 1, "bf16"),
    has_bias=True,
    has_residual=True,
    relu_after=True,
)
_ROWS = replace(
    FusedConvolution.of((1, 256, 40, 1), (512, 256, 1, 1), ((1, 1), (0, 0), (1, 1)), 1, "bf16"),
    has_bias=True,
    has_residual=True,
    gelu_after=True,
)


@pytest.mark.parametrize("spec", [_IMAGE, replace(_IMAGE, has_residual=True), _VIDEO])
@pytest.mark.parametrize("is_tuned", [False, True])
def test_an_elementwise_kernel_after_the_library_s(spec: FusedConvolution, is_tuned: bool) -> None:
    assert Check(spec, 0).fault(LibraryConvolution(is_fused=False, is_tuned=is_tuned)) == ""


@pytest.mark.parametrize("spec", [_IMAGE, replace(_IMAGE, has_residual=True)])
def test_the_library_s_kernel_with_what_is_around(spec: FusedConvolution) -> None:
    assert Check(spec, 0).fault(LibraryConvolution(is_fused=True)) == ""


@pytest.mark.parametrize("has_residual", [False, True])
@pytest.mark.parametrize("relu_after", [False, True])
def test_a_product_of_the_library(has_residual: bool, relu_after: bool) -> None:
    places = FusedConvolution(4, 64, 14, 14, 96, (1, 1), has_bias=True, pitch=128, offset=32)
    spec = replace(places, has_residual=has_residual, relu_after=relu_after)
    assert Check(spec, 0).fault(LibraryConvolution(is_fused=False, is_product=True)) == ""


@pytest.mark.parametrize("spec", [_VIDEO, _ROWS])
def test_kernels_along_three_axes_and_of_rows_are_exact(
    spec: FusedConvolution, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))
    found = convolution_times([spec], graph_target("auto"), torch.device("cuda"))[spec]
    assert found.tiles is not None, found.why
    assert found.us > 0.0
