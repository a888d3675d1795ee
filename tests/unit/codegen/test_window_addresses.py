"""Positions that are sums along two axes of a tile: each axis is summed up by itself first."""

from __future__ import annotations

import re
from itertools import pairwise

import torch
import torch.nn.functional as F

from mirage_py.frontend.torch.trace import trace
from mirage_py.pipeline.joined.joined_convolutions import joined_convolutions
from mirage_py.pipeline.pipeline import partition_of, rank_plans
from mirage_py.pipeline.selection.request import Request
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.search.enumerate.search import SearchLimits
from mirage_py.targets import target


def _image_load():
    shapes = (8, 64, 130, 130), (64, 64, 3, 3)
    x, w = (torch.empty(s, dtype=torch.bfloat16, device="meta") for s in shapes)
    found = joined_convolutions(partition_of(trace(lambda x, w: F.conv2d(x, w).relu(), x, w)))
    assert found is not None
    request = Request("h200", "triton", limits=SearchLimits(max_kernels=1))
    plan = next(i.plan for i in rank_plans(found.parts[-1], target("h200"), request).instances)
    (kernel,) = emit_kernels(plan)
    (line,) = (text for text in kernel.source.splitlines() if "tl.load(x_last_ptr" in text)
    return line, plan.options[0]


def test_rows_and_columns_of_an_image_meet_once():
    line, _ = _image_load()
    address = line.split("tl.load(", 1)[1].partition(")  #")[0]
    # A column as [:, None], a row as [None, :]: all of the one, then all of the other.
    met = re.findall(r"\[:, None\]|\[None, :\]", address)
    turns = sum(a != b for a, b in pairwise(met))
    assert turns == 1
    depth, summands = 0, 1
    for sign in address:
        depth += (sign == "(") - (sign == ")")
        summands += sign == "+" and depth == 0
    # The tensor, its sample, the place of a row and that of a column.
    assert summands == 4


def test_an_image_that_neighbouring_blocks_read_too_stays_in_the_cache():
    line, options = _image_load()
    assert "evict_first" not in line
    assert "x_last" not in options.evict_first
