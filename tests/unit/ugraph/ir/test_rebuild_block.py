"""Rebuilt block graphs: sections, positions, unused nodes."""

from __future__ import annotations

import samples

from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.rewrite.rebuild_block import NewNodes, rebuild_block, without_unread


def block_of(name: str) -> BlockGraph:
    (block,) = samples.ugraph(name).kernels
    assert isinstance(block, BlockGraph)
    return block


def test_copies_are_the_same_but_for_threads():
    for name in ("softmax", "rms_norm_matmul", "attention"):
        block = block_of(name)
        again = rebuild_block(block, NewNodes.copy)
        assert (again.nodes, again.sections) == (block.nodes, block.sections)
        assert not again.threads


def test_sections_hold_what_was_made_in_them():
    def doubled(new: NewNodes, number: int) -> int:
        made = new.copy(number)
        if new.block.nodes[number].op != "exp":
            return made
        return new.add("add", (made, made), None, new.block.nodes[number].dims)

    block = block_of("softmax")
    found = rebuild_block(block, doubled)
    assert [len(s.nodes) for s in found.sections] == [len(s.nodes) + 1 for s in block.sections]
    (total,) = (n for n in found.nodes if n.op == "sum")
    assert found.nodes[total.args[0]].op == "add"


def test_operands_may_be_elsewhere():
    block = block_of("softmax_whole_row")
    store = len(block.nodes) - 1
    found = rebuild_block(
        block, lambda new, n: new.copy(n, {block.nodes[store].args[0]: 0} if n == store else None)
    )
    assert found.nodes[store].args == (0,)
    left = without_unread(found)
    assert [n.op for n in left.nodes] == ["load", "store"]
    assert left.nodes[1].args == (0,)
    assert [s.nodes for s in left.sections] == [(0, 1)]
