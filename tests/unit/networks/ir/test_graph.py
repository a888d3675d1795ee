"""Graphs print and read back, have a digest, and lower to one Program."""

from __future__ import annotations

import pytest
import torch

from mirage_py.errors import FormatError, InputError
from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.evaluation import over_torch
from mirage_py.networks.ir.graph import Graph, Value
from mirage_py.networks.ir.lowering import program_of
from mirage_py.networks.ir.text_form import format_graph, parse_graph
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.interpret.program import evaluate_program


@pytest.fixture
def block() -> Graph:
    """A residual block with a branch that is split."""
    b = GraphBuilder()
    x = b.input("x", (2, 4, 6, 6))
    w = b.input("w", (4, 2, 3, 3), constant=True)
    norm = [b.input(f"n{i}", (4,), constant=True) for i in range(4)]
    y = b.apply("conv2d", x, w, padding=1, groups=2)
    y = b.apply("batch_norm", y, *norm, eps=0.5)
    left, right = b.apply_all("split", b.apply("relu", y), axis=1, sizes=[1, 3])
    y = b.apply("add", b.apply("concat", right, left, axis=1), x)
    pooled = b.apply("max_pool2d", y, kernel=3, stride=2, padding=1)
    return b.build(pooled, left, b.apply("cast", y, to="f64"))


def test_the_text_reads_back(block: Graph):
    found = parse_graph(format_graph(block))
    assert found == block
    assert found.digest == block.digest


def test_the_digest_sees_everything(block: Graph):
    others = [
        block.with_outputs(block.outputs[::-1]),
        parse_graph(format_graph(block).replace("constant w", "input w")),
        parse_graph(format_graph(block).replace("eps=0.5", "eps=0.25")),
        parse_graph(format_graph(block).replace("input x", "input z").replace("(x,", "(z,")
                    .replace(", x)", ", z)")),
    ]  # fmt: skip
    assert len({graph.digest for graph in [block, *others]}) == 5


def test_equal_nodes_are_one_and_dead_ones_go(block: Graph):
    b = GraphBuilder()
    x = b.input("x", (3,))
    assert b.apply("relu", x) == b.apply("relu", x)
    b.apply("exp", x)
    graph = b.build(b.apply("add", b.apply("relu", x), x))
    assert [n.operator for n in graph.nodes] == ["relu", "add"]
    again = GraphBuilder()
    place = again.copied(block)
    assert again.build(*(place[v] for v in block.outputs)) == block


def test_constants_spread():
    b = GraphBuilder()
    x, w = b.input("x", (3,)), b.input("w", (3,), constant=True)
    graph = b.build(b.apply("mul", b.apply("square", w), x))
    assert graph.is_constant == (True, False)
    assert graph.users == ((1,), ())


def test_a_graph_lowers_to_one_program(block: Graph):
    torch.manual_seed(1)
    inputs = [torch.rand(i.type.shape, dtype=torch.float64) for i in block.inputs]
    arrays = {i.name: x.numpy() for i, x in zip(block.inputs, inputs, strict=True)}
    found = evaluate_program(program_of(block), arrays, FloatMeaning())
    for n, want in enumerate(over_torch(block, inputs)):
        torch.testing.assert_close(torch.from_numpy(found[f"y{n}"]), want.double())


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("%0 = relu(z)", "no value 'z'"),
        ("%0 = nothing(x)", "unknown operator"),
        ("%0 = relu(x, x)", "1 operands, not 2"),
        ("%0 = split(x, axis=1, sizes=(1, 2)) : f32[1]", "its results are"),
        ("%0 = relu(x", "neither"),
        ("input x : f32[2]", "declared twice"),
    ],
)
def test_a_wrong_text_is_refused_with_its_line(line: str, reason: str):
    with pytest.raises(FormatError, match=reason) as caught:
        parse_graph(f"graph {{\n  input x : f32[2, 3]\n  {line}\n  return x\n}}")
    assert "line 3" in str(caught.value)


def test_a_graph_without_outputs_is_refused():
    with pytest.raises(InputError):
        GraphBuilder().build()


def test_values_are_ordered():
    assert sorted([Value(1), Value(0, 1), Value(0)]) == [Value(0), Value(0, 1), Value(1)]
