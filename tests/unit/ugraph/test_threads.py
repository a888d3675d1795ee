from __future__ import annotations

import graph_strategies as graphs
import pytest
import samples
from hypothesis import given

from mirage_py.ugraph.threads import check_threads, thread_graphs, with_threads
from mirage_py.ugraph.ugraph import BlockGraph


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # %4, the scaled score, has two users; so have the masked weights %10 that end the group.
        ("attention", ((7, 8, 10),)),
        ("softmax", ((3, 4), (8, 9, 10))),
        ("row_maximum", ()),
        ("rotary", ((2, 4, 6, 8, 10, 11),)),
        ("rms_norm_matmul", ((10, 12, 13, 14),)),
    ],
)
def test_groups(name, expected):
    block = samples.ugraph(name).kernels[0]
    assert thread_graphs(block) == expected


def test_an_accumulator_ends_a_group():
    change = "%3 = neg %2\n    %4 = silu %3\n    %5 = accum_max %4\n  }\n  %6 = neg %5"
    changes = [("%3 = accum_max %2\n  }", change), ("store Y[b] = %3", "store Y[b] = %6")]
    block = samples.edited("row_maximum", *changes).kernels[0]
    assert [block.nodes[n].op for n in thread_graphs(block)[0]] == ["neg", "silu", "accum_max"]
    assert len(thread_graphs(block)) == 1


@given(graphs.one_kernel_graphs())
def test_groups_keep_their_own_rule(graph):
    for block in graph.kernels:
        assert isinstance(block, BlockGraph)
        check_threads(with_threads(block))
