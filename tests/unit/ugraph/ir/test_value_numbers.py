"""Equal formulas have equal numbers, and others do not."""

from __future__ import annotations

import pytest
import samples

from mirage_py.frontend.spec import parse
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.rewrite.value_numbers import ValueNumbers

HEAD = "T = 6, S = 7, C = 5\nX[T, C], K[S, C], V[S] : f32\n"


def result(table: ValueNumbers, formula: str) -> int:
    """The number of a formula, which stands beside one that reads all inputs."""
    rest = "let A[t, s] = X[t, 0] * K[s, 0] * V[s]\n"
    program = parse(HEAD + rest + f"Y[t] = max[s](({formula}) - A[t, s])")
    difference = program.nodes[program.nodes[program.outputs[0].node].args[0]]
    return table.of(program.nodes)[difference.args[0]]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("sum[c](X[t, c] * K[s, c]) * 0.25", "sum[c](K[s, c] * (X[t, c] / 4))"),
        ("-sum[c](X[t, c] * K[s, c])", "sum[c](X[t, c] * (0 - 1) * K[s, c])"),
        ("sum[c](X[t, c] * V[s])", "V[s] * sum[c](X[t, c])"),
        ("sum[c](X[t, c] / V[s])", "sum[c](X[t, c]) / V[s]"),
        ("sum[s](sum[c](K[s, c] ^ 2))", "sum[c](sum[s](K[s, c] * K[s, c]))"),
        ("X[t, 1]^2 * V[s]", "X[t, 1] * (V[s] * X[t, 1])"),
        ("exp(X[t, 1] + V[s])", "exp(V[s] + X[t, 1])"),
    ],
)
def test_one_value(left: str, right: str) -> None:
    table = ValueNumbers()
    assert result(table, left) == result(table, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("sum[c](X[t, c] * K[s, c]) * 0.25", "sum[c](X[t, c] * K[s, c]) * 0.5"),
        ("X[t, 1] / V[s]", "V[s] / X[t, 1]"),
        ("X[t, 1] - V[s]", "V[s] - X[t, 1]"),
        ("sum[c](X[t, c] / K[s, c])", "sum[c](X[t, c]) / sum[c](K[s, c])"),
        ("sum[s](X[t, 1] * V[s])^2", "sum[s](X[t, 1] * V[s]^2)"),
        ("max[s](2 * X[t, 1] * V[s])", "max[s](X[t, 1] * V[s])"),
    ],
)
def test_two_values(left: str, right: str) -> None:
    table = ValueNumbers()
    assert result(table, left) != result(table, right)


def test_what_a_loop_gathers_is_the_value() -> None:
    graph = samples.ugraph("rms_norm_matmul_two_loops")
    (block,) = graph.kernels
    assert isinstance(block, BlockGraph)
    table = ValueNumbers()
    expected = table.of(graph.program.nodes)[graph.program.outputs[0].node]
    loops = {n: s.loop for s in block.sections if s.loop is not None for n in s.nodes}
    found = table.of(block.nodes, loops=loops)
    store = next(n for n, node in enumerate(block.nodes) if node.op == "store")
    # The program divides after the sum, the kernel in the loop.
    assert found[block.nodes[store].args[0]] == expected
    parts = [n for n, node in enumerate(block.nodes) if node.op == "sum"]
    gathered = [n for n, node in enumerate(block.nodes) if node.op == "accum_sum"]
    assert found[parts[0]] != found[gathered[0]]


def test_a_copy_knows_the_same_formulas_and_goes_on_by_itself() -> None:
    table = ValueNumbers()
    known = result(table, "sum[c](X[t, c] * K[s, c])")
    copy = table.copy()
    assert result(copy, "sum[c](K[s, c] * X[t, c])") == known
    more = result(copy, "exp(X[t, 1] + V[s])")
    assert result(table, "exp(X[t, 1] + V[s])") == more
