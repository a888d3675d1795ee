"""The users of a node, and the nodes that it needs."""

from __future__ import annotations

import samples

from mirage_py.ugraph.ir.data_flow import cone, reads_of


def test_of_a_softmax():
    nodes = samples.ugraph("softmax").program.nodes
    assert [n.op for n in nodes] == ["load", "exp", "sum", "div"]
    assert reads_of(nodes) == [(1,), (2, 3), (3,), ()]
    assert cone(nodes, [2]) == (0, 1, 2)
    assert cone(nodes, [3, 1]) == (0, 1, 2, 3)
    assert cone(nodes, []) == ()
