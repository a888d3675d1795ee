"""Values that blocks share are computed once where that makes no difference, and only there."""

from __future__ import annotations

import pytest

from mirage_py.ugraph.field import FIELDS, FieldOps
from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.interpret.meaning import FieldMeaning
from mirage_py.ugraph.text.text_form import parse_ugraph

TEXT = """
ugraph outer
dim a = 7
dim b = 9
input X[7] : f32
input Z[9] : f32
output Y[7, 9] : f32
program {
  %0 = load X[a]
  %1 = load Z[b]
  %2 = exp %0
  %3 = mul %2, %1
  return Y[a, b] = %3
}
kernel outer {
  grid a by 3, b by 2
  %0 = load X[INDEX]
  %1 = load Z[b]
  %2 = exp %0
  %3 = mul %2, %1
  store Y[a, b] = %3
}
"""


class Counting(FieldOps):
    calls = 0

    def exp(self, a):
        self.calls += 1
        return super().exp(a)


class BlockByBlock(FieldMeaning):
    """Reuses what it may, but joins no blocks."""

    is_pointwise = False
    is_repeatable = property(lambda self: not self.ops.fills)


@pytest.mark.parametrize(("fills", "calls"), [("", 3), ("1 / 0", 15)])
def test_blocks_along_an_axis_share_what_lacks_it(fills, calls):
    graph = parse_ugraph(TEXT.replace("INDEX", "a"))
    ops = Counting(FIELDS[0], 1, fills=fills)
    inputs = {t.name: ops.random(t.shape, t.name) for t in graph.program.inputs}
    expected = evaluate_program(graph.program, inputs, FieldMeaning(FieldOps(FIELDS[0], 1)))["Y"]
    assert ops.equal(expected, evaluate_ugraph(graph, inputs, BlockByBlock(ops))["Y"])
    assert ops.calls == calls


def test_an_index_is_a_dependency():
    graph = parse_ugraph(TEXT.replace("INDEX", "(a + b) % 7"))
    ops = Counting(FIELDS[0], 1)
    inputs = {t.name: ops.random(t.shape, t.name) for t in graph.program.inputs}
    evaluate_ugraph(graph, inputs, BlockByBlock(ops))
    assert ops.calls == 15
