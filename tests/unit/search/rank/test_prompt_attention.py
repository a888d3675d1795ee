"""Causal attention of prompts: what was fastest on an H200 is among what the ranking proposes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.ablation.prefill_plans import Cell, family, variants
from mirage_py.search.rank.instantiate import rank
from mirage_py.targets import target
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph

_RESULTS = Path(__file__).parents[4] / "benchmarks" / "results" / "h200-prefill.json"
_MEASURED = 60  # plans of a quick tuning


def chosen(plan: Plan) -> tuple[object, ...]:
    """What decides on the speed of these: orders, stages and turns are a few percent."""
    (block,) = plan.ugraph.kernels
    (options,) = plan.options
    assert isinstance(block, BlockGraph)
    loops = tuple(s.tile for s in block.sections if s.loop is not None)
    tiles = block.grid_tiles["t"], block.grid_tiles["e"], loops
    return *tiles, options.num_warps, options.overlap, options.producer_warps


# One of each kind; all 17 take 6 s.
@pytest.mark.parametrize(
    "cell",
    [Cell(128, 16384), Cell(64, 1024), Cell(64, 8192), Cell(256, 4096), Cell(128, 4096, 1024)],
    ids=str,
)
def test_the_fastest_are_proposed_first(cell: Cell) -> None:
    rows = json.loads(_RESULTS.read_text(encoding="utf-8"))["rows"]
    (row,) = (r for r in rows if Cell(r["width"], r["tokens"], r["window"]) == cell)
    plans = {v.name: chosen(v.plan(cell)) for v in variants(cell)}
    found = [chosen(i.plan) for i in rank([family(cell)], target("h200"), _MEASURED, "cuda")]
    us = {name: line["us"] for line in row["plans"] for name in (line["name"],)}
    best = min(us.values())
    first = min(us[name] for name, what in plans.items() if what in found[:10])
    assert first <= 1.08 * best
    assert min(us[name] for name, what in plans.items() if what in found) == best
    assert first < min(line["us"] for line in row["peers"])
