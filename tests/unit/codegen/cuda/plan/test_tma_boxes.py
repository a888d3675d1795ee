"""Boxes of TMA: tiles of images in windows, of one box or as pixels from place to place."""

from __future__ import annotations

import pytest
from cuda_plans import cuda_plan, kernel_of, planned
from nightly import NIGHTLY
from window_plans import CHANNELS, PLACE, STEP, windows

from mirage_py.runtime.code_check.check import check_plan
from mirage_py.runtime.cpu.cuda_emulation import check_emulated
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.plan import Plan

SQUARE = windows((PLACE // 11, PLACE % 11), {"p": 99}, (11, 13), tiles={"p": 64, "o": 64})
STRIDED = windows((PLACE // 7 * 2, PLACE % 7 * 3), {"p": 35}, (11, 21), tiles={"p": 16, "o": 64})
APART = windows(
    (ix.dim("h") * 2, ix.dim("w")), {"h": 8, "w": 16}, (17, 18), tiles={"h": 4, "w": 8, "o": 64}
)
SHORT = windows(
    (ix.dim("h"), ix.dim("w")), {"h": 5, "w": 13}, (7, 15), tiles={"h": 2, "w": 16, "o": 64}
)
CUBE = windows(
    (PLACE // 20, PLACE // 5 % 4, PLACE % 5),
    {"p": 60},
    (4, 5, 6),
    tiles={"p": 16, "o": 64},
    offsets=(STEP // (4 * CHANNELS), STEP // (2 * CHANNELS) % 2, STEP // CHANNELS % 2),
    depth=8 * CHANNELS,
)
IN_TF32 = windows(
    (PLACE // 11, PLACE % 11), {"p": 99}, (11, 13), tiles={"p": 64, "o": 64}, dtype=F32
)
CASES = {
    "tf32": IN_TF32,
    "square": SQUARE,
    "strided": STRIDED,
    "apart": APART,
    "short": SHORT,
    "cube": CUBE,
}


def image_box(plan: Plan):
    found = planned(plan)
    boxes = found.pipeline.boxes
    return next(
        (b for n, b in boxes.items() if found.facts.block.nodes[n].access.tensor == "X"), None
    )


@pytest.mark.parametrize("name", CASES)
def test_a_convolution_by_tma_agrees_with_float64(name: str) -> None:
    plan = CASES[name]
    (kernel,) = [kernel_of(plan)]
    assert {m.tensor for m in kernel.tensor_maps} == {"X", "W"}
    assert ("wgmma_m64" in kernel.body) == (plan in (SQUARE, IN_TF32))
    judged = check_emulated(plan.ugraph.program, plan, seed=3)
    assert judged.passed, judged.reason


# Pixels of windows and boxes with steps; the others differ in their numbers.
@pytest.mark.parametrize("name", CASES if NIGHTLY else ("square", "apart", "cube"))
def test_the_checker_of_emitted_code_knows_pixels_and_steps(name: str) -> None:
    (found,) = check_plan(CASES[name])
    assert not found.faults
    assert not found.unsupported


def test_places_of_an_image_as_one_dimension_are_pixels_of_windows() -> None:
    box = image_box(SQUARE)
    assert (box.axes, box.points) == ((3, 2, 1, 0), (32, 64))
    assert (box.windows.steps, box.windows.corners) == ((1, 1), (-2, -2))
    strided = image_box(STRIDED).windows
    assert (strided.steps, strided.corners) == ((3, 2), (-2, -2))
    assert image_box(CUBE).windows.corners == (-1, -1, -1)


def test_places_apart_are_a_box_with_steps() -> None:
    box = image_box(APART)
    assert box.windows is None
    assert (box.axes, box.points, box.steps) == ((3, 2, 1, 0), (32, 8, 4, 1), (1, 1, 2, 1))
    (tensor_map,) = [m for m in kernel_of(APART).tensor_maps if m.tensor == "X"]
    assert (tensor_map.box, tensor_map.steps) == ((32, 8, 8, 1), (1, 1, 2, 1))


def test_what_tma_cannot_reach_is_no_box() -> None:
    square = (PLACE // 11, PLACE % 11)
    tiles = {"p": 32, "o": 64}
    # A tile of two positions of the window.
    assert image_box(windows(square, {"p": 99}, (11, 13), tiles=tiles, loop=2 * CHANNELS)) is None
    # Offsets have 8 bits.
    far = (STEP // (3 * CHANNELS) * 200, STEP // CHANNELS % 3)
    assert image_box(windows(square, {"p": 99}, (409, 13), tiles=tiles, offsets=far)) is None
    # Places that go back.
    back = (PLACE // 11, (PLACE % 11) * -1 + 10)
    assert image_box(windows(back, {"p": 99}, (11, 13), tiles=tiles)) is None
    # Several samples in a tile.
    assert image_box(windows(square, {"p": 99}, (11, 13), tiles={**tiles, "n": 2})) is None


def test_results_change_hands_where_the_stages_of_the_loop_were() -> None:
    plan = windows((PLACE // 16, PLACE % 16), {"p": 256}, (18, 18), tiles={"p": 128, "o": 64})
    kernel = kernel_of(plan)
    stages_bytes, results_bytes = 2 * (128 + 64) * CHANNELS * 2, 128 * 64 * 2
    assert "changes hands" in kernel.body
    assert stages_bytes <= kernel.smem_bytes < stages_bytes + results_bytes
    judged = check_emulated(plan.ugraph.program, plan, seed=3)
    assert judged.passed, judged.reason


def grouped(rows: int, groups: int) -> Plan:
    """A linear layer and means of groups of its columns, whose weights lie behind one another."""
    return cuda_plan(
        f"""
        M = 64, D = 64, G = {groups}, E = 32
        X[M, D], W[{rows}, D], B[G, E] : bf16
        let U[m, g, e] = sum[d](X[m, d] * W[g * 32 + e, d]) + B[g, e]
        Y[m, g, e] = U[m, g, e] - mean[e](U[m, g, e])
        """,
        """
        kernel grouped {
          grid m by 64, g by 4
          loop d by 32 {
            %0 = load X[m, d]
            %1 = load W[g * 32 + e, d]
            %2 = matmul[d] %0, %1
            %3 = accum_sum %2
          }
          %4 = load B[g, e]
          %5 = add %3, %4
          %6 = sum[e] %5
          %7 = size e
          %8 = div %6, %7
          %9 = sub %5, %8
          store Y[m, g, e] = %9
        }
        """,
        2,
        arch="sm_90a",
        copies="descriptors",
    )


@pytest.mark.parametrize("groups", [8, 6])
def test_groups_of_columns_are_one_run_of_weights(groups: int) -> None:
    """Also where a tile goes past the end."""
    plan = grouped(32 * groups, groups)
    found = planned(plan)
    tensors = {found.facts.block.nodes[n].access.tensor: b for n, b in found.pipeline.boxes.items()}
    assert (tensors["W"].axes, tensors["W"].points, tensors["W"].steps) == (
        (1, 0),
        (32, 128),
        (1, 1),
    )
    judged = check_emulated(plan.ugraph.program, plan, seed=3)
    assert judged.passed, judged.reason
