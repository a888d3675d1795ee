"""Tiles that threads copy together are there for all of them only behind the block's barrier."""

from __future__ import annotations

import json
from pathlib import Path

import clusters
import pytest
import several_kernels

from mirage_py.codegen.cuda.kernel.module import emit_cuda
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.text.json_form import from_json

KEPT = Path(__file__).parents[4] / "data" / "cuda_plans"


def kept(name: str) -> Plan:
    plan = from_json(json.loads((KEPT / f"{name}.json").read_text()))
    assert isinstance(plan, Plan)
    return plan


# In the first one a value that stays in its warp is turned just where a tile is waited for.
PLANS = {
    "kept lora": kept("lora_cluster"),
    "lora": clusters.cluster_lora(),
    "attention": clusters.cluster_attention(),
    "split attention": several_kernels.plan("split_attention"),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_block_meets_behind_each_wait(name: str):
    behind = [line for kernel in emit_cuda(PLANS[name]) for line in barriers(kernel.body)]
    assert behind
    assert all(line.startswith(("__syncthreads", "named_barrier")) for line in behind)


def barriers(body: str) -> list[str]:
    """The first barrier of any kind behind each wait for copies."""
    lines = [line.strip() for line in body.splitlines()]
    waits = [n for n, line in enumerate(lines) if line.startswith("cp_async_wait")]
    kinds = ("__sync", "named_barrier")
    return [next(line for line in lines[n:] if line.startswith(kinds)) for n in waits]
