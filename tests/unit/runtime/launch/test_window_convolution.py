"""Fused convolutions and pools over windows on a CPU, of whole numbers: every sum is exact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.checks.sanitize_plans import read, write
from benchmarks.checks.window_plans import window_plans
from mirage_py.codegen.cuda.kernel.module import emit_cuda, kernel_plans
from mirage_py.errors import ScheduleError
from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.launch.convolutions.weights import memory_format, weight_form
from mirage_py.runtime.launch.fused_convolution import (
    kernel_source,
    laid_out,
    reference,
)
from mirage_py.search.networks.convolutions.window_tiles import is_over_windows, window_tiles
from mirage_py.targets import target
from mirage_py.ugraph.building.window_convolutions import window_plan, window_program
from mirage_py.ugraph.ir.convolution import FusedConvolution, WindowTiles, plan_text, read_plan
from mirage_py.verify.field_test.field_test import field_test
from tests.conftest import Golden

H200 = target("h200")
needs_compiler = pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
_AROUND = FusedConvolution(2, 20, 5, 6, 20, (5, 5), padding=(2, 2), groups=20, relu_before=True,
                           has_bias=True, relu_after=True, pitch=28, offset=4)  # fmt: skip
_UNEVEN = FusedConvolution(1, 12, 7, 6, 12, (3, 2), (2, 1), (1, 0), (1, 2), 12, "f16",
                           has_residual=True, residual_pitch=20, residual_offset=8)  # fmt: skip
_FRAMES = replace(
    FusedConvolution.of((1, 6, 4, 4, 5), (6, 1, 2, 3, 3), ((2, 1, 1), (1, 1, 1), (1, 1, 2)), 6,
                        "f16"),
    has_bias=True, has_residual=True,
)  # fmt: skip
_POOL = FusedConvolution(2, 11, 9, 8, 11, (3, 3), (2, 2), (1, 1), groups=11, pool="max")
# Channels last and planar: what is around, slices, strides, dilations, uneven windows, frames,
# channels in odd numbers and one row; maxima and means with what is around them.
CASES = {
    "around": _AROUND,
    "planar": replace(_AROUND, is_planar=True),
    "uneven": _UNEVEN,
    "uneven planar": replace(_UNEVEN, is_planar=True),
    "odd channels": FusedConvolution(1, 7, 6, 6, 7, (3, 3), padding=(1, 1), groups=7),
    "odd and planar": FusedConvolution(
        3, 7, 6, 5, 7, (3, 3), padding=(1, 1), groups=7, is_planar=True, has_residual=True
    ),
    "aligned": FusedConvolution(2, 16, 8, 8, 16, (7, 7), padding=(3, 3), groups=16, has_bias=True),
    "frames": _FRAMES,
    "frames planar": replace(_FRAMES, is_planar=True),
    "one row": FusedConvolution(2, 8, 3, 9, 8, (3, 3), groups=8, has_bias=True),
    "largest": _POOL,
    "largest planar": replace(_POOL, is_planar=True, has_residual=True),
    "largest dilated": replace(
        _POOL, kernel=(2, 3), stride=(1, 1), dilation=(2, 1), relu_before=True, pitch=24, offset=8
    ),
    "mean": replace(_POOL, pool="mean", stride=(1, 1), has_residual=True, relu_after=True),
    "mean planar": replace(_POOL, pool="mean", is_planar=True, has_bias=True),
    "mean of frames": replace(_FRAMES, pool="mean", dilation=(1, 1)),
}


def _drawn(*shape: int) -> torch.Tensor:
    return torch.randint(1, 4, shape) * (2 * torch.randint(0, 2, shape) - 1)


def _image(
    spec: FusedConvolution, space: tuple[int, ...], apart: int, offset: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The tensor that is in memory, and the image that is a slice of it."""
    if spec.is_planar:
        whole = _drawn(spec.batch, apart, *space).to(_TYPES[spec.dtype])
        return whole, whole[:, offset : offset + spec.inputs]
    whole = _drawn(spec.batch, *space, apart).to(_TYPES[spec.dtype])
    return whole, whole.movedim(-1, 1)[:, offset : offset + spec.inputs]


_TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_each_result_is_that_of_float64(name: str) -> None:
    spec = CASES[name]
    torch.manual_seed(0)
    held, x = _image(spec, spec.space, spec.apart, spec.offset)
    arrays, want = {"x": held}, (x.double().relu() if spec.relu_before else x.double())
    rank, found = len(spec.space), window_tiles(spec, H200, 24)
    packed = None
    functional = torch.nn.functional
    stride, padding, dilation = spec.sliding
    if spec.pool == "max":
        pool = getattr(functional, f"max_pool{rank}d")
        want = pool(want, spec.window, stride, padding, dilation)
    elif spec.pool:
        want = getattr(functional, f"avg_pool{rank}d")(want, spec.window, stride, padding)
    else:
        w = _drawn(spec.results, 1, *spec.window).to(x.dtype)
        want = getattr(functional, f"conv{rank}d")(
            want, w.double(), None, *spec.sliding, spec.groups
        )
        arrays["w"] = packed = weight_form(spec, found[0]).packed(w)
    bias = residual = None
    if spec.has_bias:
        arrays["bias"] = bias = _drawn(spec.results).to(x.dtype)
        want = want + bias.double().reshape(-1, *(1,) * rank)
    if spec.has_residual:
        held, residual = _image(spec, spec.out_space, spec.residual_apart, spec.residual_offset)
        arrays["residual"] = held
        want = want + residual.double()
    want = (want.relu() if spec.relu_after else want).to(x.dtype)
    # The fewest results of a thread come first, the most last.
    for tiles in (found[0], found[-1]) if name in ("planar", "largest") else found[:1]:
        plan = window_plan(spec, tiles)
        assert kernel_plans(plan) == ()  # it is a kernel over windows
        given = {t.name: arrays[t.name].float().numpy() for t in plan.ugraph.program.inputs}
        got = torch.from_numpy(np.asarray(run_emulated(plan, given)["y"], dtype=np.float64))
        got = got.reshape(want.shape if spec.is_planar else want.movedim(1, -1).shape)
        got = got if spec.is_planar else got.movedim(-1, 1)
        # A mean is a product with the inverse of the number, which may round the other way.
        last_place = 2**-7 if spec.pool == "mean" else 0.0
        torch.testing.assert_close(got, want.double(), rtol=last_place, atol=last_place**3)
        # What the operator computes without a GPU, over the packed weight.
        again = reference(spec, tiles, x, packed, bias, residual)
        assert torch.equal(again, want)
        assert again.is_contiguous(memory_format=memory_format(spec))


@pytest.mark.parametrize("name", ["around", "uneven planar", "frames", "largest", "mean"])
def test_the_tiled_kernel_is_its_program_over_a_field(name: str) -> None:
    spec = CASES[name]
    plan = window_plan(spec, window_tiles(spec, H200, 1)[0])
    assert field_test(window_program(spec), plan.ugraph, seed=0).equal


def test_plans_travel_as_text() -> None:
    tiles = window_tiles(_AROUND, H200, 1)[0]
    for spec in CASES.values():
        assert read_plan(plan_text(spec, tiles)) == (spec, tiles)


def test_tiles_are_ranked_once_whatever_is_around() -> None:
    bare = replace(_AROUND, relu_before=False, has_bias=False, relu_after=False, pitch=0, offset=0)
    assert window_tiles(_AROUND, H200, 24) is window_tiles(bare, H200, 24)


def test_a_relu_in_front_is_applied_once_to_each_element() -> None:
    spec = FusedConvolution(1, 16, 12, 12, 16, (3, 3), padding=(1, 1), groups=16, relu_before=True)
    (kernel,) = emit_cuda(window_plan(spec, window_tiles(spec, H200, 1)[0]))
    (plain,) = emit_cuda(
        window_plan(replace(spec, relu_before=False), window_tiles(spec, H200, 1)[0])
    )
    loads = plain.body.count("reinterpret_cast<const")
    assert kernel.body.count("reinterpret_cast<const") == loads
    assert 0 < kernel.body.count("relu") - plain.body.count("relu") <= 8 * loads


@pytest.mark.parametrize(
    ("name", "pool"), [("depthwise_of_slices", ""), ("mean_with_residual", "mean")]
)
def test_the_text_of_a_kernel(name: str, pool: str, golden: Golden) -> None:
    spec = FusedConvolution(2, 12, 9, 9, 12, (3, 3), padding=(1, 1), groups=12, relu_before=True,
                            has_bias=not pool, has_residual=bool(pool), relu_after=True, pitch=24,
                            offset=4, pool=pool)  # fmt: skip
    grid = (("c", 16), ("j", 4), ("i", 4), ("n", 1))
    (kernel,) = emit_cuda(window_plan(spec, WindowTiles(grid, 1)))
    golden.check(kernel.body, f"cuda/{name}.cu.txt")


def test_the_plans_for_memory_checkers_have_every_form(tmp_path: Path) -> None:
    found = tuple(window_plans())
    write(found, tmp_path / "windows.json")
    assert [c.plan for c in read(tmp_path)] == [c.plan for c in found]
    assert all(kernel_plans(c.plan) == () for c in found)
    assert len({c.name for c in found}) == len(found) >= 24


def test_slices_are_given_by_the_place_that_they_are_behind() -> None:
    whole = torch.zeros(2, 5, 6, 24, dtype=torch.float16)
    planar = torch.zeros(2, 24, 5, 6, dtype=torch.float16)
    for x, is_planar, start in (
        (whole.movedim(-1, 1)[:, 8:20], False, whole), (planar[:, 8:20], True, planar),
    ):  # fmt: skip
        image, at = laid_out(x, 24, 8, is_planar=is_planar)
        assert (image is x, at) == (True, start.data_ptr())
        copy, at = laid_out(x.flip(-1), 24, 8, is_planar=is_planar)
        assert torch.equal(copy, x.flip(-1))
        behind = 8 * (30 if is_planar else 1) * 2
        assert copy.data_ptr() - behind == at


def test_what_sums_channels_or_is_long_is_no_kernel_over_windows() -> None:
    dense = FusedConvolution(1, 8, 5, 5, 8, (3, 3))
    assert not is_over_windows(dense)
    assert not is_over_windows(replace(dense, groups=8, kernel=(1, 1)))
    assert window_tiles(replace(dense, groups=8, height=3, width=3), H200, 4) == ()  # one place
    assert not is_over_windows(replace(dense, groups=8, kernel=(13, 13), padding=(6, 6)))
    assert window_tiles(dense, H200, 4) == ()
    with pytest.raises(ScheduleError, match="sums over several"):
        kernel_source(dense, WindowTiles((("c", 8), ("j", 4), ("i", 4), ("n", 1)), 4))
