"""Attention of rows without a key through search, stabiliser and both back ends: 0, not NaN."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from nightly import NIGHTLY

from mirage_py.frontend.torch.trace import trace
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.search.rank.instantiate import rank
from mirage_py.search.stabilize.stabilize import stabilized
from mirage_py.targets import H200
from mirage_py.ugraph.ir.plan import Plan

QUERIES, KEYS, WIDTH = 4, 512, 16
# The second sequence is padded on its left by more than any tile has; its first row has no key.
KEEP = torch.ones(2, 1, QUERIES, KEYS, dtype=torch.bool)
KEEP[1, :, :, :300] = False
KEEP[1, :, 0] = False
MASKS = {"bool": KEEP, "infinite": torch.zeros(KEEP.shape).masked_fill(~KEEP, -torch.inf).half()}
BACKENDS = {"bool": "triton", "infinite": "cuda"}
LIMITS = SearchLimits(max_cluster_blocks=16)
KINDS = ("one kernel", "several kernels", "split", "cluster", "library")


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def inputs(mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(4)
    q, k, v = (torch.randn(2, 2, n, WIDTH).half() for n in (QUERIES, KEYS, KEYS))
    return q, k, v, mask


@cache
def plans(name: str) -> dict[str, Plan]:
    """The best plan of each kind, by back end and kind. By day each mask has a back end of its own:
    the stabiliser sees the form of a mask, emission does not.
    """
    program = trace(attention, *inputs(MASKS[name]))
    found = [stabilized(family.ugraph) for family in search(program, limits=LIMITS).families]
    safe = [s.ugraph for s in found if not s.faults]
    best: dict[str, Plan] = {}
    for backend in ("triton", "cuda") if NIGHTLY else (BACKENDS[name],):
        for instance in rank(safe, H200, 200, backend):
            best.setdefault(f"{backend} {instance.kind}", instance.plan)
    return best


@pytest.mark.parametrize("name", MASKS)
def test_every_kind_of_plan_gives_zero(name):
    given = inputs(MASKS[name])
    wide = [x if x.dtype is torch.bool else x.double() for x in given]
    want = attention(*wide)
    assert not want[1, :, 0].any()
    assert want[1, :, 1:].all()
    arrays = dict(zip(("q", "k", "v", "mask"), (x.double().numpy() for x in given), strict=True))
    found = plans(name)
    for kind, plan in found.items():
        run = run_interpreted if plan.backend == "triton" else run_emulated
        got = run(plan, arrays)["out"]
        np.testing.assert_allclose(got, want.numpy(), atol=2e-3, rtol=2e-3, err_msg=kind)
    words = " ".join(found)
    # Triton has no clusters.
    wanted = [kind for kind in KINDS if kind != "cluster" or "cuda" in words]
    assert [kind for kind in wanted if kind not in words] == []
