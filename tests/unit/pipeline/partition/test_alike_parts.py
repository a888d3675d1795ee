"""Plans of one part, renamed for another that is alike."""

from __future__ import annotations

from mirage_py.frontend.spec import parse
from mirage_py.pipeline.partition.alike_parts import alike, renamed
from mirage_py.pipeline.partition.part_choice import Chosen, Picked
from mirage_py.pipeline.pipeline import normalise, rank_plans
from mirage_py.pipeline.selection.request import Request
from mirage_py.targets import H200
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.field_test.field_test import field_test

SQUARES = """
B = 2, K = 65536
X[B, K] : f32
S[b] = sum[k](X[b, k] * X[b, k])
"""


def part(text: str, name: str) -> Program:
    return normalise(parse(text, name=name))


def test_the_results_of_a_first_kernel_get_names_that_are_free():
    old = part(SQUARES, "one")
    request = Request(backend="triton", effort="none")
    ranking = rank_plans(old, H200, request)
    plan = next(i.plan for i in ranking.instances if i.plan.ugraph.intermediates)
    (between, *_) = plan.ugraph.intermediates
    new = part(SQUARES.replace("X", between.name).replace("S", "T").replace("k]", "j]"), "two")
    assert alike((old, new)) == (0, 0)
    found = renamed(Chosen(None, {"triton": Picked(plan, 1.0)}), old, new, H200)
    graph = found.picked["triton"].plan.ugraph
    validate_ugraph(graph)
    assert len(graph.kernels) == len(plan.ugraph.kernels)
    assert {t.name for t in graph.intermediates}.isdisjoint(new.tensors)
    field_test(new, graph, trials=2, seed=0).require()
