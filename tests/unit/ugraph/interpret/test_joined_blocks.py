"""Blocks are evaluated as one where each element is computed by itself, and nowhere else."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
import samples
from adversarial.mutations import mutants

from mirage_py.errors import MirageError
from mirage_py.ugraph.field import FIELDS, DivisionByZero, FieldOps
from mirage_py.ugraph.interpret import evaluate_ugraph
from mirage_py.ugraph.interpret.block import _independent
from mirage_py.ugraph.interpret.meaning import FieldMeaning
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.ugraph.text.text_form import parse_ugraph
from mirage_py.verify.evaluate.trial import random_inputs, reading_of
from mirage_py.verify.intervals.exact_meaning import ExactMeaning
from mirage_py.verify.intervals.structured_inputs import exact_inputs

TEXT = """
ugraph rows
dim a = 7
dim b = 9
input X[7, 9] : f32
output Y[7] : f32
program {
  %0 = load X[a, b]
  %1 = exp %0
  %2 = sum[b] %1
  return Y[a] = %2
}
kernel rows {
  grid a by 3
  %0 = load X[a, b]
  %1 = exp %0
  %2 = sum[b] %1
  store Y[a] = %2
}
"""


class BlockByBlock(FieldMeaning):
    is_pointwise = False


class ExactBlockByBlock(ExactMeaning):
    is_pointwise = False


class Counting(FieldOps):
    calls = 0

    def exp(self, a):
        self.calls += 1
        return super().exp(a)


def joined(graph: UGraph) -> list[tuple[str, ...]]:
    return [_independent(k) for k in graph.kernels if isinstance(k, BlockGraph)]


@pytest.mark.parametrize(("sizes", "calls"), [("", 1), ("dim c = 8192\n", 3)])
def test_one_block_has_the_elements_of_all_if_they_are_few(sizes, calls):
    text = TEXT.replace("input X", f"{sizes}input X", 1)
    if sizes:  # another dimension, that the block has whole
        text = text.replace("X[7, 9]", "X[7, 9, 8192]").replace("X[a, b]", "X[a, b, c]")
        text = text.replace("sum[b] %1", "sum[b, c] %1")
    graph = parse_ugraph(text)
    ops = Counting(FIELDS[0], 1)
    inputs = {t.name: ops.random(t.shape, t.name) for t in graph.program.inputs}
    evaluate_ugraph(graph, inputs, FieldMeaning(ops))
    assert ops.calls == calls


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("rms_norm_matmul", [("n", "b")]),
        ("attention", [("h", "t")]),
        ("split_attention", [("h", "p"), ("h", "t")]),
        # Blocks along n and p add up what they have.
        ("split_matmul_added", [("b",)]),
    ],
)
def test_axes_that_are_summed_stay_apart(name, axes):
    assert joined(samples.ugraph(name)) == axes


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sum[b] %1", "sum[a, b] %1"),
        ("store Y[a] =", "store_add Y[0] ="),
        ("grid a by 3", "grid a by ?"),
    ],
)
def test_blocks_of_one_result_are_not_joined(old, new):
    assert joined(parse_ugraph(TEXT)) == [("a",)]
    head, _, kernel = TEXT.partition("kernel")
    assert joined(parse_ugraph(f"{head}kernel{kernel.replace(old, new)}")) == [()]


@pytest.mark.parametrize("name", ["rms_norm_matmul", "split_matmul_added", "softmax", "rotary"])
def test_right_and_wrong_graphs_are_what_they_are_block_by_block(name):
    """The same values, or the same fault."""
    graph = samples.ugraph(name)
    program, several = graph.program, 0
    ops = FieldOps(FIELDS[0], 7, reading_of(program))
    random, exact = random_inputs(program, ops), exact_inputs([program], 24, 3)
    for wrong in chain([graph], [wrong for _, wrong in mutants(graph)][::12]):
        if not any(joined(wrong)):
            continue
        several += 1
        together = outcome(wrong, random, FieldMeaning(ops))
        assert together == outcome(wrong, random, BlockByBlock(ops))
        assert outcome(wrong, exact, ExactMeaning()) == outcome(wrong, exact, ExactBlockByBlock())
    assert several >= 4


@pytest.mark.parametrize("name", ["softmax", "attention", "split_attention"])
def test_tiles_have_the_shifts_of_their_blocks(name):
    class Shifts(ExactMeaning):
        def __init__(self, *, together):
            super().__init__()
            self.is_pointwise = together
            self.made = {}

        def shift(self, x, key):
            found = super().shift(x, key)
            self.made[key] = found.interval.mid.tolist()
            return found

    graph = samples.ugraph(name)
    inputs = exact_inputs([graph.program], 3, 3)
    one, other = Shifts(together=True), Shifts(together=False)
    evaluate_ugraph(graph, inputs, one)
    evaluate_ugraph(graph, inputs, other)
    assert one.made == other.made
    assert len(one.made) > 3


def outcome(graph, inputs, meaning):
    try:
        found = evaluate_ugraph(graph, inputs, meaning)
    except (MirageError, DivisionByZero, IndexError) as error:
        return type(error)
    if isinstance(meaning, ExactMeaning):
        # How far rounding may be off depends on the order of a sum.
        return {
            name: (x.residue.tolist(), x.interval.known().tolist(), x.interval.undefined().tolist())
            for name, x in found.items()
        }
    return {
        n: (x.p.tolist(), x.q if x.q is None else np.asarray(x.q).tolist())
        for n, x in found.items()
    }
