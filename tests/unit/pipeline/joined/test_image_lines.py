"""Tiles of an implicit matrix product: pixels side by side are whole lines, samples are pieces."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from mirage_py.frontend.torch.trace import trace
from mirage_py.pipeline.joined.image_lines import by_lines, pieces
from mirage_py.pipeline.joined.joined_convolutions import joined_convolutions
from mirage_py.pipeline.pipeline import partition_of, rank_plans
from mirage_py.pipeline.selection.request import Request
from mirage_py.search.enumerate.search import SearchLimits
from mirage_py.targets import target


def test_tiles_of_neighbouring_pixels_come_before_those_of_many_samples():
    shapes = (128, 16, 66, 66), (64, 16, 3, 3)
    x, w = (torch.empty(s, dtype=torch.bfloat16, device="meta") for s in shapes)
    found = joined_convolutions(partition_of(trace(lambda x, w: F.conv2d(x, w).amin(1), x, w)))
    assert found is not None
    request = Request("h200", "triton", limits=SearchLimits(max_kernels=1))
    instances = rank_plans(found.parts[-1], target("h200"), request).instances
    seen = {pieces(i.plan.ugraph) for i in instances}
    assert min(seen) < 1.5
    assert max(seen) > 3.0
    ranked = by_lines(instances)
    assert pieces(ranked[0].plan.ugraph) < 1.5
    assert ranked[0].estimate.time_us < 1.3 * instances[0].estimate.time_us
