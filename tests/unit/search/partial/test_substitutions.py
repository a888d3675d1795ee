"""Mutants as substitutions: the graph level finds that narrow groups are better merged."""

from __future__ import annotations

import numpy as np

from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.evaluation import over_field, random_inputs
from mirage_py.networks.ir.graph import Graph
from mirage_py.search.networks.optimize_network import optimize_network
from mirage_py.search.partial.substitutions import mutants
from mirage_py.targets import target
from mirage_py.ugraph.field import FIELDS, FieldOps
from mirage_py.ugraph.ir.dtypes import BF16


def _network(groups: int) -> Graph:
    b = GraphBuilder()
    x = b.input("x", (4, 32, 16, 16), BF16)
    w = b.input("w", (32, 32 // groups, 3, 3), BF16, constant=True)
    return b.build(b.apply("relu", b.apply("conv2d", x, w, padding=1, groups=groups)))


def test_narrow_groups_are_merged():
    """Tensor cores take 16 channels at once: 4 groups of 4 as one waste none of them."""
    program = _network(8)
    found = optimize_network(program, target("h200"), substitutions=mutants(1))
    assert found.after_us < found.before_us
    (step,) = found.steps
    assert step.rule == "mutant 1 of conv2d"
    assert step.proof == "field test"
    groups = [n["groups"] for n in found.graph.nodes if n.operator == "conv2d"]
    assert groups == [2]
    ops = FieldOps(FIELDS[1], 3)
    inputs = random_inputs(program, ops)
    (ours,), (theirs,) = (over_field(g, inputs, ops) for g in (program, found.graph))
    assert np.array_equal(ours.p, theirs.p)


def test_what_no_mutant_makes_faster_stays():
    program = _network(1)
    found = optimize_network(program, target("h200"), substitutions=mutants(1))
    assert found.graph == program
