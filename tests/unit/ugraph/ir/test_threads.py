from __future__ import annotations

from dataclasses import replace

import graph_strategies as graphs
import pytest
import samples
from hypothesis import given

from mirage_py.errors import ValidationError
from mirage_py.ugraph.ir.threads import check_threads, steps_of, thread_graphs, with_threads
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.operators import ELEMENTWISE, operator
from mirage_py.ugraph.text.mermaid import format_mermaid
from mirage_py.ugraph.text.svg import outline


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # %4, the scaled score, has two users; so have the masked weights %12 that end the group.
        # The maximum %8 is read by an accumulator that its loop reads: all threads make it whole.
        ("attention", ((7, 8), (10, 11, 12), (13, 14))),
        ("softmax", ((3, 4, 5, 6), (8, 9, 10))),
        ("row_maximum", ((1, 2, 3),)),
        ("rotary", ((2, 4, 6, 8, 10, 11),)),
        ("rms_norm_matmul", ((6, 7, 8), (10, 12, 13, 14))),
    ],
)
def test_groups(name, expected):
    block = samples.ugraph(name).kernels[0]
    assert thread_graphs(block) == expected


CHAIN = "%3 = neg %2\n    %4 = silu %3\n    %5 = accum_max %4\n  }\n  %6 = neg %5"
CHAIN_EDITS = [("%3 = accum_max %2\n  }", CHAIN), ("store Y[b] = %3", "store Y[b] = %6")]


def test_an_accumulator_ends_a_group_and_a_reduction_that_others_read_begins_none():
    block = samples.edited("row_maximum", *CHAIN_EDITS).kernels[0]
    ops = [[block.nodes[n].op for n in group] for group in thread_graphs(block)]
    assert ops == [["silu", "max"], ["neg", "silu", "accum_max"]]


def test_a_value_that_is_used_twice_inside_is_inside():
    block = samples.edited(
        "row_maximum",
        ("%2 = max[s] %1", "%2 = exp %1\n    %3 = mul %1, %2\n    %4 = max[s] %3"),
        ("%3 = accum_max %2\n", "%5 = accum_max %4\n"),
        ("store Y[b] = %3", "store Y[b] = %5"),
    ).kernels[0]
    ops = [[block.nodes[n].op for n in group] for group in thread_graphs(block)]
    assert ops == [["silu", "exp", "mul", "max", "accum_max"]]


@given(graphs.one_kernel_graphs())
def test_groups_keep_their_own_rule(graph):
    for block in graph.kernels:
        assert isinstance(block, BlockGraph)
        check_threads(with_threads(block))


@given(graphs.one_kernel_graphs())
def test_groups_are_maximal(graph):
    """No value outside that could be inside: one whose readers all lie in one group."""
    for block in graph.kernels:
        groups = thread_graphs(block)
        whole = [
            *groups,
            *((n,) for n in range(len(block.nodes)) if not any(n in g for g in groups)),
        ]
        for n, node in enumerate(block.nodes):
            if operator(node.op).kind != ELEMENTWISE:
                continue
            readers = [u for u, other in enumerate(block.nodes) if n in other.args]
            for group in whole:
                merged = tuple(sorted({*group, *next(g for g in whole if n in g)}))
                if merged != group and readers and all(r in group for r in readers):
                    with pytest.raises(ValidationError):
                        check_threads(replace(block, threads=(merged,)))


@given(graphs.one_kernel_graphs())
def test_steps_run_in_order_and_hold_every_node_once(graph):
    for block in graph.kernels:
        for typed in (with_threads(block), replace(block, threads=())):
            made: list[int] = []
            for section in typed.sections:
                for step in steps_of(typed, section):
                    for n in step:
                        assert all(a in made or a in step for a in typed.nodes[n].args)
                    made += step
            assert sorted(made) == list(range(len(typed.nodes)))


def test_steps_without_groups_are_nodes():
    block = samples.ugraph("softmax").kernels[0]
    (first, second) = block.sections
    assert steps_of(replace(block, threads=()), first) == tuple((n,) for n in first.nodes)
    assert steps_of(with_threads(block), second) == ((7,), (8, 9, 10), (11,))


def boxes(part, kind):
    if isinstance(part, str):
        return 0
    return (part.kind == kind) + sum(boxes(inner, kind) for inner in part.parts)


@given(graphs.one_kernel_graphs())
def test_pictures_have_one_box_for_each_thread_graph(graph):
    for block in graph.kernels:
        drawn = replace(graph, kernels=(with_threads(block),))
        count = len(drawn.kernels[0].threads)
        assert boxes(outline(drawn), "thread") == count
        assert format_mermaid(drawn).count('["thread graph"]') == count


@pytest.mark.parametrize(
    ("name", "group", "fault"),
    [
        ("attention", (8, 9), "%8 is reduced over all threads before %9 reads it"),
        ("attention", (12, 13), "%12 is not the last of it and is used outside"),
        ("rms_norm_matmul", (8, 10), "in several sections"),
        ("rms_norm_matmul", (4, 5), "more than elementwise operators, reductions"),
    ],
)
def test_what_is_no_thread_graph(name, group, fault):
    block = samples.ugraph(name).kernels[0]
    with pytest.raises(ValidationError, match=fault):
        check_threads(replace(block, threads=(group,)))
