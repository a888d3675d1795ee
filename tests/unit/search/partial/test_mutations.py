"""Mutants are found, their wrong boxes are those of a brute-force comparison, and corrected they
are equal.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from graph_regions import with_replacement

from mirage_py.networks.ir.builder import GraphBuilder, graph_of
from mirage_py.networks.ir.evaluation import over_field, random_inputs
from mirage_py.networks.ir.graph import Graph
from mirage_py.networks.ir.lowering import program_of
from mirage_py.networks.ir.regions import Region
from mirage_py.networks.operators import TensorType
from mirage_py.search.partial.boxes import WrongBoxes, wrong_boxes
from mirage_py.search.partial.cuts import reshaped_cuts
from mirage_py.search.partial.enumerate import found_recipes
from mirage_py.search.partial.joins import found_joins
from mirage_py.search.partial.mutations import (
    corrected_graph,
    mutation,
    mutations,
)
from mirage_py.search.partial.recipe import Recipe, mutant_graph, work
from mirage_py.search.partial.verified import verified
from mirage_py.ugraph.field import FIELDS, FieldOps
from mirage_py.verify.field_test.programs import compare_programs

# Programs: an operator, the shapes of its operands, its attributes, rounds of the search.
_DENSE = ("conv2d", ((4, 4, 12, 10), (4, 4, 3, 3)), (("padding", (1, 1)),), 1)
_DILATED = ("conv2d", ((1, 2, 12, 12), (2, 2, 3, 3)),
            (("dilation", (2, 2)), ("padding", (2, 2))), 2)  # fmt: skip
_STRIDED = ("conv2d", ((4, 2, 12, 8), (2, 2, 3, 3)), (("padding", (1, 1)), ("stride", (2, 2))), 1)
_GROUPED = ("conv2d", ((1, 8, 8, 8), (8, 2, 3, 3)), (("groups", 4), ("padding", (1, 1))), 1)
_FLAT = ("conv2d", ((2, 4, 8, 10), (4, 4, 1, 3)), (("padding", (0, 1)),), 1)
_LINE = ("conv1d", ((4, 2, 16), (2, 2, 3)), (("padding", (1,)),), 1)
_ROWS = ("matmul", ((4, 6, 4), (4, 2)), (), 1)
_STACK = ("bmm", ((4, 6, 4), (4, 4, 2)), (), 1)

# What PET finds, by how its recipe reads here; the share of the result that is wrong before it is
# corrected, in elements.
_TALL = "operand 0: all of 0 before 2, result: all of 0 before 2"
_TILES = "operand 0: major 2 of 2 before 0, result: major 2 of 2 before 0"
_CASES = [
    (_DENSE, _TALL, 6 * 40),
    (_DENSE, "operand 0: all of 0 before 3, result: all of 0 before 3", 6 * 48),
    # Tiles as further samples; as further rows.
    (_DENSE, "operand 0: major 2 of 3 before 0, result: major 2 of 3 before 0", 2 * 192),
    (_DENSE, "operand 0: major 2 of 2 before 3, result: major 2 of 2 before 3", None),
    # Samples between the rows of a dilated convolution.
    (_DENSE, ("operand 0: minor 2 of 0 behind 2, padding = (2, 1), dilation = (2, 1), "
     "result: minor 2 of 0 behind 2"), 0),
    (_DENSE, ("operand 0: minor 2 of 1 behind 2, operand 1: minor 2 of 1 behind 2, "
     "stride = (2, 1), padding = (2, 1)"), 0),
    (_DENSE, "2 copies in groups", 0),
    (_GROUPED, "2 groups as one", 0),
    (_GROUPED, "4 groups as one", 0),
    (_DILATED, ("operand 0: minor 2 of 2 before 2, padding = (1, 2), dilation = (1, 2), "
     "result: minor 2 of 2 before 2"), 2 * 24),
    (_DILATED, ("operand 0: minor 2 of 2 before 0; minor 2 of 3 before 0, dilation = (1, 1), "
     "padding = (1, 1), result: minor 2 of 2 before 0; minor 2 of 3 before 0"), 0),
    (_DILATED, ("operand 0: minor 2 of 2 before 0; minor 2 of 3 before 3, dilation = (1, 1), "
     "padding = (1, 1), result: minor 2 of 2 before 0; minor 2 of 3 before 3"), 2 * 24),
    (_STRIDED, "operand 0: all of 0 before 2, result: all of 0 before 2", 3 * 8),
    (_FLAT, ("operand 0: swap 2 3, operand 1: all of 3 before 2, padding = (1, 0), "
     "result: swap 2 3"), 0),
    (_LINE, _TILES, 2 * 8),
    (_ROWS, "operand 0: all of 0 before 1, result: all of 0 before 1", 0),
    (_STACK, "operand 0: swap 1 2, operand 1: swap 1 2, operands exchanged, result: swap 1 2", 0),
]  # fmt: skip


def _graph(program: tuple) -> Graph:
    op, shapes, attributes, _ = program
    return graph_of(op, [TensorType(s) for s in shapes], dict(attributes))


@cache
def _found(program: tuple) -> dict[str, Recipe]:
    found = found_recipes(_graph(program), least_share=0.4, rounds=program[3])
    return {str(f.recipe): f.recipe for f in found}


def _differs(graph: Graph, other: Graph) -> np.ndarray:
    """Where they differ, of all elements."""
    ops = FieldOps(FIELDS[1], 11)
    inputs = random_inputs(graph, ops)
    results = (over_field(g, inputs, ops) for g in (graph, other))
    differs = [ours.p != theirs.p for ours, theirs in zip(*results, strict=True)]
    return differs[0] if len(differs) == 1 else np.stack(differs)


@pytest.mark.parametrize(("program", "recipe", "wrong"), _CASES)
def test_found_derived_corrected_and_verified(program: tuple, recipe: str, wrong: int | None):
    graph, known = _graph(program), _found(program)
    assert recipe in known
    (boxes,) = wrong_boxes(graph, known[recipe])
    brute = _differs(graph, mutant_graph(graph, known[recipe]))
    assert np.array_equal(boxes.mask(), brute)
    assert wrong is None or brute.sum() == wrong
    assert boxes.share == pytest.approx(brute.mean())
    found = mutation(graph, known[recipe])
    assert found.evidence.equal, found.evidence
    assert found.evidence.small > 0
    assert not _differs(graph, found.graph).any()


def test_every_mutant_of_a_program_has_the_boxes_of_brute_force():
    """Also where most is wrong."""
    graph = _graph(_STRIDED)
    tried = 0
    for recipe in _found(_STRIDED).values():
        (boxes,) = wrong_boxes(graph, recipe)
        brute = _differs(graph, mutant_graph(graph, recipe))
        # A box with a wrong element may have right ones; a right box has none that is wrong.
        assert not (brute & ~boxes.mask()).any(), recipe
        tried += 1
    assert tried > 10


def test_the_field_test_of_programs_agrees():
    graph, recipe = _graph(_LINE), _found(_LINE)[_TILES]
    right = mutation(graph, recipe)
    assert compare_programs(program_of(graph), program_of(right.graph)).equal
    left = mutant_graph(graph, recipe)
    assert not compare_programs(program_of(graph), program_of(left)).equal


def test_boxes_say_where_a_mutant_differs():
    graph, recipe = _graph(_DENSE), _found(_DENSE)[_TALL]
    (boxes,) = wrong_boxes(graph, recipe)
    assert "differs in 12.5 %" in str(boxes)
    assert "0:3, 0:4, 11:12, 0:10" in str(boxes)
    assert _differs(graph, mutant_graph(graph, recipe)).mean() == 0.125


def test_a_box_too_few_is_found():
    """Verification knows nothing of where a graph comes from."""
    graph, recipe = _graph(_DENSE), _found(_DENSE)[_TALL]
    (boxes,) = wrong_boxes(graph, recipe)
    for left in range(len(boxes.boxes)):
        fewer = WrongBoxes(boxes.digits, (boxes.boxes[left],), boxes.tested)
        changed = corrected_graph(graph, recipe, [fewer])
        found = verified(graph, changed, [boxes.digits], None)
        assert not found.equal
        assert "differs" in found.reason


def test_real_sizes_are_as_quick():
    """A convolution of ResNet at batch 16: 462 million products, of which few are computed."""
    attributes = {"padding": (1, 1)}
    shapes = [(16, 64, 28, 28), (64, 64, 3, 3)]
    graph = graph_of("conv2d", [TensorType(s) for s in shapes], attributes)
    found = mutation(graph, _found(_DENSE)[_TALL])
    assert found.evidence.equal
    assert str(found.boxes[0]).startswith("differs in 6.7 % of the result")
    program, mutant = found.work
    assert mutant / program == pytest.approx(1 + 15 * 2 / (16 * 28))


def test_mutations_begin_with_the_least_work_for_tensor_cores():
    """Groups of 2 channels fill an eighth of a step each way: four of them as one take no more."""
    graph = _graph(_GROUPED)
    first, *others = mutations(graph, most=2)
    assert str(first) == "4 groups as one: equal"
    assert first.work == (work(graph), 4 * work(graph))
    assert work(first.graph, step=16) * 4 == work(graph, step=16)
    assert len(others) == 1
    calls = [
        n.attributes for m in (first, *others) for n in m.graph.nodes if n.operator == "conv2d"
    ]
    assert len(set(calls)) == len(calls)


def test_what_a_library_computes_alike_is_no_mutant():
    """The dilation of a kernel of one element."""
    graph = graph_of("conv2d", [TensorType((1, 2, 4, 4)), TensorType((2, 2, 1, 1))], {})
    assert any(str(f.recipe) == "dilation = (1, 2)" for f in found_recipes(graph))
    found = mutations(graph)
    assert found
    assert not any(str(m).startswith("dilation") for m in found)


def test_a_network_with_a_mutated_operator():
    b = GraphBuilder()
    x, w = b.input("x", (1, 2, 8, 8)), b.input("w", (2, 2, 3, 3), constant=True)
    y = b.apply("relu", b.apply("conv2d", x, w, padding=1))
    graph = b.build(b.apply("add", y, x))
    found = [
        (number, with_replacement(graph, region, mutant.graph))
        for number in range(len(graph.nodes))
        for region in [Region.of(graph, [number])]
        for mutant in mutations(region.graph(graph), most=1)
    ]
    assert [number for number, _ in found] == [0]
    for _, whole in found:
        assert len(whole.nodes) > len(graph.nodes)
        assert not _differs(graph, whole).any()


def _pair(op: str, shapes: list[tuple[int, ...]], attributes: list[dict], weights: int) -> Graph:
    """Two operators; the first operands have one shape each, with one weight or two."""
    b = GraphBuilder()
    inputs = [b.input(f"i{n}", shape) for n, shape in enumerate(shapes)]
    images, own = inputs[:-weights], inputs[-weights:]
    return b.build(
        b.apply(op, images[0], own[0], **attributes[0]),
        b.apply(op, images[-1], own[-1], **attributes[-1]),
    )


_JOINS = [
    # 1 x k and k x 1: one is turned, then they are groups.
    (_pair("conv2d", [(1, 2, 8, 8), (1, 2, 8, 8), (2, 2, 1, 3), (2, 2, 3, 1)],
           [{"padding": (0, 1)}, {"padding": (1, 0)}], 2),
     "side by side on axis 0, 2 times the groups, result cut on axis 1; of operator 1", 0),
    (_pair("conv2d", [(1, 2, 8, 8), (1, 2, 8, 8), (2, 2, 3, 3), (2, 2, 3, 3)], [{}], 2),
     "operand 0 side by side on axis 1, operand 1 side by side on axis 0, 2 times the groups", 0),
    # Two images beside each other: rows at the seam are wrong.
    (_pair("conv2d", [(1, 2, 8, 8), (1, 2, 8, 8), (2, 2, 3, 3)], [{"padding": 1}], 1),
     "operand 0 side by side on axis 2, operand 1 shared, result cut on axis 2", 2 * 2 * 8),
    (_pair("matmul", [(1, 4, 6), (1, 6, 4), (1, 6, 4)], [{}], 2),
     "operand 0 shared, operand 1 side by side on axis 0, result cut on axis 0", 0),
    (_pair("bmm", [(1, 4, 6), (1, 4, 6), (1, 6, 4), (1, 6, 4)], [{}], 2),
     "operand 0 side by side on axis 0, operand 1 side by side on axis 0", 0),
]  # fmt: skip


@pytest.mark.parametrize(("graph", "join", "wrong"), _JOINS)
def test_several_operators_are_joined(graph: Graph, join: str, wrong: int):
    found = next(j for j in found_joins(graph) if join in str(j))
    boxes = wrong_boxes(graph, found)
    brute = _differs(graph, mutant_graph(graph, found))
    assert np.array_equal(np.stack([b.mask() for b in boxes]), brute)
    assert brute.sum() == wrong
    right = mutation(graph, found)
    assert right.evidence.equal, right.evidence
    assert not _differs(graph, right.graph).any()


def test_what_reads_each_other_is_not_joined():
    b = GraphBuilder()
    x, w = b.input("x", (1, 2, 8, 8)), b.input("w", (2, 2, 3, 3))
    y = b.apply("conv2d", x, w, padding=1)
    assert found_joins(b.build(y, b.apply("conv2d", y, w, padding=1))) == []


@pytest.mark.parametrize(
    ("cuts", "old", "new", "expected"),
    [
        # 7 of 12 is digit 1 and a half of (3, 4): both sides of that digit, and the minor cut.
        (((7,),), (12,), (3, 4), ((1, 2), (3,))),
        (((8,),), (12,), (3, 4), ((2,), ())),
        # Each time the minor digit turns over.
        (((), (3,)), (3, 4), (12,), ((3, 4, 7, 8, 11),)),
        (((1,), ()), (3, 4), (3, 1, 4), ((1,), (), ())),
    ],
)
def test_cuts_follow_digits(cuts, old, new, expected):
    assert reshaped_cuts(cuts, old, new) == expected
