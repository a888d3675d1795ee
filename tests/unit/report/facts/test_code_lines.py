"""Each node of a block graph has its line of code, in Triton and in CUDA."""

from __future__ import annotations

import json

import pytest

from benchmarks.gallery.gallery import EXAMPLES, ROOT, SEARCHED
from mirage_py.report.facts.code_lines import node_lines
from mirage_py.report.packed import unpacked
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.ugraph.ir.node import STORES
from mirage_py.ugraph.ir.ugraph import BlockGraph


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_node_has_a_line_that_speaks_of_it(name: str) -> None:
    path = ROOT / SEARCHED / f"{name}.json"
    plan = unpacked(json.loads(path.read_text("utf-8")), str(path)).plan
    assert plan is not None
    sources = {kernel.name: kernel.source for kernel in emit_kernels(plan)}
    found = node_lines(plan, sources)
    for block in plan.ugraph.kernels:
        if not isinstance(block, BlockGraph):
            continue
        lines = sources[block.name].splitlines()
        for number, node in enumerate(block.nodes):
            text = lines[found[block.name, number] - 1]
            if node.op in (*STORES, "load"):
                tensor = node.access.tensor
                assert tensor in text or f"{tensor.lower()}_tile" in text
                assert "__restrict__" not in text
            # What computes it, in either language.
            said = {"matmul": "dot", "max": "max", "exp": "exp", "sum": "sum"}.get(node.op, "")
            fused = {"matmul": "acc", "sum": "acc"}.get(node.op, said)
            assert said in text or fused in text, (node, text)
