"""The model's order of tiles for matmuls of float32, beside what they take on an H200."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fp32_plans import KERNEL
from several_kernels import over

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.frontend.spec import parse
from mirage_py.search.model.launches import usual_options
from mirage_py.search.rank.plan_model import PlanModel
from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.targets import H200
from mirage_py.ugraph.ir.launch_choices import Precision
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

MEASURED = json.loads(
    (Path(__file__).parents[4] / "benchmarks/results/h200-float32-tiles-by-hand.json").read_text()
)


def matmul(case: dict[str, Any], rows: int, columns: int, inner: int) -> UGraph:
    """A matmul with these tiles; weights lie along the inner positions or across them."""
    weight = "W[n, d]" if case["columns_along_inner"] else "W[d, n]"
    sizes = f"B = {case['rows']}, D = {case['inner']}, N = {case['columns']}"
    text = f"{sizes}\nX[B, D], {weight.upper()} : f32\nY[b, n] = sum[d](X[b, d] * {weight})"
    tiles = KERNEL.replace("b by 64, n by 64", f"b by {rows}, n by {columns}")
    return over(parse(text), tiles.replace("d by 32", f"d by {inner}").replace("W[d, n]", weight))


@pytest.mark.parametrize("case", MEASURED["matmuls"], ids=lambda case: f"{case['rows']}")
def test_tiles_of_three_matmuls_of_tf32(case: dict[str, Any]) -> None:
    """Of the kernels that fit, the one that the model has first is within 15 % of the fastest of
    all, and the order of the others is about theirs.
    """
    predicted, measured = [], []
    for kernel in case["kernels"]:
        if kernel["precision"] == "tf32x3":
            *tile, warps, stages = kernel["tile"]
            options = LaunchConfig(warps, (stages,), precision=Precision.TF32X3)
            plan = Plan(matmul(case, *tile), (options,))
            predicted.append(PlanModel(plan, H200).predicted().time_us)
            measured.append(kernel["us"])
    found, real = np.array(predicted), np.array(measured)
    assert real[np.argmin(found)] <= 1.15 * real.min()
    fits = np.isfinite(found)
    assert real[~fits].min() > 1.2 * real.min()
    ranks = [np.argsort(np.argsort(x[fits])) for x in (found, real)]
    assert np.corrcoef(ranks)[0, 1] > 0.7


def test_operands_that_lie_along_the_inner_positions_are_the_columns() -> None:
    """wgmma takes columns of float32 in no other way."""
    orders = []
    for case in MEASURED["matmuls"][:2]:
        ugraph = matmul(case, 128, 128, 32)
        (block,) = ugraph.kernels
        assert isinstance(block, BlockGraph)
        kernel = TiledKernel(Tiling(ugraph.program, block))
        times = {
            o.reversed_axes: PlanModel(Plan(ugraph, (o,)), H200).predicted().time_us
            for o in usual_options(kernel)
            if o.precision is Precision.TF32X3 and o.num_warps == 8
        }
        orders.append(min(times, key=lambda is_reversed: times[is_reversed]))
    assert orders == [True, False]
