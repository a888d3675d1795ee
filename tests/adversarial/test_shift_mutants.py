"""Wrong ways to shift exponentials in several kernels and under logarithms, all refused."""

from __future__ import annotations

import pytest
from adversarial.test_mutants import chosen, differs_in_floats, refused
from exp_graphs import CAUSAL, LOG_LOOP, LOG_PARTS, LOG_ROWS, LOOPED, PADDED, attention, loss
from families import stabilize

from mirage_py.ugraph.ir.ugraph import UGraph

GRAPHS = {
    "a loss in a loop": lambda: loss(LOG_LOOP),
    "a loss of parts": lambda: loss(LOG_PARTS, "tensor A[5, 3] : f32", PADDED),
    "a loss of rows": lambda: loss(LOG_ROWS, "tensor A[5] : f32"),
    "causal attention": lambda: attention(LOOPED, CAUSAL),
}
PER_GRAPH = 24
# A grid of four axes makes each trial long.
PER_ATTENTION = 8


@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_wrong_shifts_are_refused(name: str) -> None:
    limit = PER_ATTENTION if "attention" in name else PER_GRAPH
    graph: UGraph = stabilize(GRAPHS[name]())
    assert not refused(graph.program, graph)
    wrong = [
        (kind, mutant)
        for kind, mutant in chosen(graph, limit)
        if differs_in_floats(graph.program, mutant)
    ]
    assert len(wrong) > limit // 3
    assert [kind for kind, mutant in wrong if not refused(graph.program, mutant)] == []
