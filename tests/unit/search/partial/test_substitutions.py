"""Mutants as substitutions: what they do is in tests/unit/dynamo/networks, what they leave here."""

from __future__ import annotations

from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.graph import Graph
from mirage_py.search.networks.optimize_network import optimize_network
from mirage_py.search.partial.substitutions import mutants
from mirage_py.targets import target
from mirage_py.ugraph.ir.dtypes import BF16


def _network() -> Graph:
    b = GraphBuilder()
    x = b.input("x", (4, 32, 16, 16), BF16)
    w = b.input("w", (32, 32, 3, 3), BF16, constant=True)
    return b.build(b.apply("relu", b.apply("conv2d", x, w, padding=1)))


def test_what_no_mutant_makes_faster_stays():
    program = _network()
    found = optimize_network(program, target("h200"), substitutions=mutants(1))
    assert found.graph == program
