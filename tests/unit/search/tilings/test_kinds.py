"""Kinds of µGraphs and their names in reports."""

from __future__ import annotations

import pytest
import several_kernels
from plans import rms_plan, two_kernel_plan

from mirage_py.search.space.splits import at_splits
from mirage_py.search.tilings.kinds import describe, kind_of

KINDS = {
    "split_rms_norm_matmul": ("split", "split d x4: 2 kernels"),
    "split_attention": ("split", "split s x4: 2 kernels"),
    "split_matmul_added": ("atomic", "split d x4, atomic: one kernel"),
    "library_epilogue": ("library", "library: 2 kernels"),
    "library_prologue": ("library", "library: 2 kernels"),
    "residual_gated": ("one kernel", "one kernel"),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_hand_made_graphs(name: str) -> None:
    graph = several_kernels.ugraph(name)
    assert (kind_of(graph), describe(graph)) == KINDS[name]


def test_kernels_that_share_nothing_out() -> None:
    graph = two_kernel_plan().ugraph
    assert (kind_of(graph), describe(graph)) == ("several kernels", "2 kernels")
    assert kind_of(rms_plan().ugraph) == "one kernel"


def test_numbers_of_parts_have_names_of_their_own() -> None:
    graph = several_kernels.ugraph("split_attention")
    assert describe(at_splits(graph, {"s": 8})) == "split s x8: 2 kernels"
