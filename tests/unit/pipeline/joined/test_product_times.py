"""Times of implicit matmuls: tiles rank as they were measured."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mirage_py.frontend.torch.trace import trace
from mirage_py.pipeline.joined.joined_convolutions import joined_convolutions
from mirage_py.pipeline.joined.product_times import Tile, by_times, tile_of
from mirage_py.pipeline.pipeline import partition_of, rank_plans
from mirage_py.pipeline.selection.request import Request
from mirage_py.search.enumerate.search import SearchLimits
from mirage_py.targets import target

MEASURED = json.loads(
    (Path(__file__).parents[4] / "benchmarks/results/h200-joined-by-hand.json").read_text()
)["convolutions"]
NAMES = ["L2-1 bf16", "L2-1 fp32", "L1-55 bf16", "L2-25 bf16", "L2-7 fp32"]
# Kernels of CUDA read TF32 by other instructions now than when they were measured.
CASES = [(n, "triton") for n in range(len(NAMES))] + [(n, "cuda") for n in (0, 2, 3)]


def _tile(case, kernel):
    columns, samples, places, steps, warps, _ = kernel["tile"]
    depth = prod(case["window"]) * case["image"][-1]
    element_bytes = 2 if case["dtype"] == "bf16" else 4
    blocks = -(-case["results"] // columns) * -(-case["samples"] // samples)
    blocks *= -(-prod(case["places"]) // places)
    traffic = blocks * (samples * places + columns) * depth * element_bytes
    return Tile(
        element_bytes=element_bytes,
        channels=case["image"][-1],
        steps=steps,
        rows=samples * places,
        columns=columns,
        apart=samples > 1,
        warps=warps,
        traffic_bytes=traffic,
    )


def _ranked(number, backend):
    """For each kernel its tiling, the measured and the predicted time, and the model's."""
    case = MEASURED[number]
    kernels = [k for k in case["kernels"] if k["backend"] == backend]
    return [
        (tuple(k["tile"][:4]), k["us"], _tile(case, k).time_us(k["model_us"]), k["model_us"])
        for k in kernels
    ]


def _correlation(one, other):
    """Of ranks, those of equal values in the middle (Spearman)."""
    ranks = [[np.mean([np.sum(x < v), np.sum(x <= v) - 1]) for v in x] for x in (one, other)]
    return np.corrcoef(ranks)[0, 1]


@pytest.mark.parametrize(("number", "backend"), CASES, ids=[f"{NAMES[n]} {b}" for n, b in CASES])
def test_three_tilings_hold_the_fastest(number, backend):
    rows = _ranked(number, backend)
    tilings = list(dict.fromkeys(t for t, *_ in sorted(rows, key=lambda row: row[2])))[:3]
    best = min(us for _, us, *_ in rows)
    assert min(us for t, us, *_ in rows if t in tilings) <= 1.03 * best


@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_tiles_of_triton_rank_as_measured(number):
    rows = _ranked(number, "triton")
    measured, predicted, model = (np.array([row[n] for row in rows]) for n in (1, 2, 3))
    found = _correlation(measured, predicted)
    assert found >= 0.6
    assert found > _correlation(measured, model)


def test_tiles_of_plans_are_seen_and_the_fastest_is_first():
    shapes = (128, 64, 66, 66), (64, 64, 3, 3)
    x, w = (torch.empty(s, dtype=torch.bfloat16, device="meta") for s in shapes)
    found = joined_convolutions(partition_of(trace(lambda x, w: F.conv2d(x, w).amin(1), x, w)))
    assert found is not None
    request = Request("h200", "triton", limits=SearchLimits(max_kernels=1))
    ranked = by_times(rank_plans(found.parts[-1], target("h200"), request).instances)
    times = [us for _, us in ranked]
    assert times == sorted(times)
    tiles = [tile_of(i) for i, _ in ranked]
    assert all(t.channels == 64 and t.element_bytes == 2 and t.columns == 64 for t in tiles if t)
    assert all(tiles)
    assert not tiles[0].apart
    assert {t.apart for t in tiles} == {True, False}
    assert tiles[0].steps in (32, 64)
    blocks = -(-128 * 64 * 64 // tiles[0].rows)
    assert tiles[0].traffic_bytes == blocks * (tiles[0].rows + 64) * 576 * 2
