"""Every operator of networks means the same to torch, over a field, and as a Program."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from unit.networks.drawn import DRAWS

from mirage_py.errors import InputError
from mirage_py.networks.ir.builder import GraphBuilder, graph_of
from mirage_py.networks.ir.evaluation import over_field, over_torch, random_inputs
from mirage_py.networks.ir.graph import Graph
from mirage_py.networks.ir.lowering import program_of
from mirage_py.networks.operators import Operator, TensorType, all_operators
from mirage_py.ugraph.field import FIELDS, DivisionByZero, FieldOps
from mirage_py.ugraph.interpret.meaning import FieldMeaning, FloatMeaning
from mirage_py.ugraph.interpret.program import evaluate_program

_DRAWS_OF_EACH = 5
# What has no value for negative numbers.
_PARTIAL = ("log", "sqrt", "rsqrt", "pow")


def _drawn(name: str, number: int) -> Graph:
    rng = np.random.default_rng([number, *name.encode()])
    shapes, attributes = DRAWS[name](rng)
    return graph_of(name, [TensorType(tuple(s)) for s in shapes], attributes)


def _floats(graph: Graph, *, positive: bool) -> list[torch.Tensor]:
    torch.manual_seed(0)
    drawn = [torch.randn(i.type.shape, dtype=torch.float64) for i in graph.inputs]
    return [x.abs() + 0.1 for x in drawn] if positive else drawn


@pytest.mark.parametrize("name", [row.name for row in all_operators()])
def test_torch_program_and_shape_rule_agree(name: str):
    for number in range(_DRAWS_OF_EACH):
        graph = _drawn(name, number)
        inputs = _floats(graph, positive=name in _PARTIAL or name == "batch_norm")
        expected = over_torch(graph, inputs)
        arrays = {i.name: x.numpy() for i, x in zip(graph.inputs, inputs, strict=True)}
        found = evaluate_program(program_of(graph), arrays, FloatMeaning())
        for n, want in enumerate(expected):
            assert tuple(want.shape) == graph.output_types[n].shape, graph
            np.testing.assert_allclose(found[f"y{n}"], want.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [row.name for row in all_operators()])
def test_field_and_program_agree(name: str):
    for number in range(_DRAWS_OF_EACH):
        graph = _drawn(name, number)
        ops = FieldOps(FIELDS[number % len(FIELDS)], seed=number)
        inputs = random_inputs(graph, ops)
        try:
            found = over_field(graph, inputs, ops)
        except DivisionByZero:
            continue
        arrays = {i.name: x for i, x in zip(graph.inputs, inputs, strict=True)}
        want = evaluate_program(program_of(graph), arrays, FieldMeaning(ops))
        for n, result in enumerate(found):
            assert result.shape == graph.output_types[n].shape
            assert ops.equal(result, want[f"y{n}"]), graph


def _holds(graph: Graph, group: tuple[int, ...], ops: FieldOps) -> bool:
    """f(a + b, y) = f(a, y) + f(b, y) for the operands in the group."""
    x = random_inputs(graph, ops)
    y = [ops.random(i.type.shape, f"{i.name} again") for i in graph.inputs]
    pairs = list(enumerate(zip(x, y, strict=True)))
    summed = [ops.add(a, b) if n in group else a for n, (a, b) in pairs]
    other = [b if n in group else a for n, (a, b) in pairs]
    parts = zip(*(over_field(graph, v, ops) for v in (summed, x, other)), strict=True)
    return all(ops.equal(s, ops.add(a, b)) for s, a, b in parts)


@pytest.mark.parametrize("row", all_operators(), ids=lambda row: row.name)
def test_a_row_says_what_it_is_linear_in(row: Operator):
    ops = FieldOps(FIELDS[0], seed=5)
    graphs = [_drawn(row.name, number) for number in range(3)]
    for graph in graphs:
        every = tuple(range(len(graph.inputs)))
        groups = [every if group == (-1,) else group for group in row.linear]
        assert sorted(n for group in groups for n in group) in ([], [*every])
        assert all(_holds(graph, group, ops) for group in groups)
    # A cast is the identity over the field, and no linear map of floats.
    alone = [_holds(g, (n,), ops) for g in graphs for n in range(len(g.inputs))]
    assert row.linear or row.name == "cast" or not all(alone)


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "reason"),
    [
        ("matmul", [(2, 3), (4, 5)], {}, "3 columns meet 4 rows"),
        ("bmm", [(2, 2, 3), (1, 3, 2)], {}, "2 and 1 matrices"),
        ("add", [(2, 3), (2, 2)], {}, "axis 1 has extents"),
        ("conv2d", [(1, 4, 5, 5), (4, 4, 3, 3)], {"groups": 2}, "for 8 channels, not for 4"),
        ("conv2d", [(1, 4, 5, 5), (3, 2, 3, 3)], {"groups": 2}, "2 groups do not divide"),
        ("conv1d", [(1, 1, 2), (1, 1, 3)], {}, "kernel is larger"),
        ("conv_transpose1d", [(1, 1, 2), (1, 1, 3)], {"output_padding": 1}, "output_padding"),
        ("max_pool2d", [(1, 4, 4)], {"kernel": 2, "stride": 2, "padding": 2}, "half of the kernel"),
        ("adaptive_avg_pool1d", [(1, 7)], {"counts": 2}, "different sizes"),
        ("enlarge", [(1, 1, 2, 2)], {"kernel": (3, 3)}, "equal borders"),
        ("split", [(4,)], {"axis": 0, "sizes": (1, 2)}, "does not add up to 4"),
        ("reshape", [(4,)], {"shape": (3, 2)}, "does not have 4 elements"),
        ("transpose", [(4, 2)], {"perm": (0, 0)}, "no permutation"),
        ("concat", [(4, 2), (4, 3)], {"axis": 0}, "more than axis 0"),
        ("slice", [(4,)], {"axis": 0, "start": 2, "stop": 5}, "no range within 4"),
        ("sum", [(4,)], {"axes": (1,)}, "no ascending axes"),
    ],
)  # fmt: skip
def test_a_shape_rule_says_why_it_refuses(op, shapes, attributes, reason):
    builder = GraphBuilder()
    operands = [builder.input(f"x{n}", shape) for n, shape in enumerate(shapes)]
    with pytest.raises(InputError, match=reason):
        builder.apply_all(op, *operands, **attributes)


def test_attributes_are_checked():
    builder = GraphBuilder()
    x = builder.input("x", (1, 1, 4, 4))
    for attributes in ({"kernel": 2}, {"kernel": 2, "stride": (1, 2, 3)}, {"size": 2}):
        with pytest.raises(InputError):
            builder.apply("max_pool2d", x, **attributes)
