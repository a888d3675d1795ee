"""Draws of random inputs in which every choice is one."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mirage_py.frontend.torch.trace import trace
from mirage_py.pipeline.pipeline import normalise
from mirage_py.search.closure.hits import draw
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.search.space.spaces import representative_space
from mirage_py.search.space.values import evaluate
from mirage_py.ugraph.field import FIELDS
from mirage_py.ugraph.ir.program import Program

CHOICES = ("relu", "maximum", "minimum", "abs")


def pooled() -> Program:
    """A padded max pool with a relu behind it, in front of a matmul."""

    def function(x: Tensor, w: Tensor) -> Tensor:
        return F.relu(torch.einsum("bchw,cn->bhwn", F.relu(F.max_pool2d(x, 3, 2, 1)), w))

    return normalise(trace(function, torch.zeros(2, 8, 12, 12), torch.zeros(8, 8)))


def biased() -> Program:
    """A clamp of the largest of sums: what is below 0 in every operand is not in a sum."""

    def function(x: Tensor, b: Tensor) -> Tensor:
        return F.hardtanh(F.max_pool2d(x + b, 4)).mean((2, 3))

    return normalise(trace(function, torch.zeros(2, 8, 12, 16), torch.zeros(8, 1, 1)))


PROGRAMS = pytest.mark.parametrize("made", [pooled, biased])


@pytest.mark.covering(1)
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("seed", range(3))
@PROGRAMS
def test_a_maximum_of_many_is_below_zero_somewhere(made, field, seed):
    program = made()
    values, _ = draw(program, representative_space(program), field, seed)
    nodes = evaluate(program, values)
    chosen = [(n, node) for n, node in enumerate(program.nodes) if node.op in CHOICES]
    assert len(chosen) == 2
    assert all(nodes[n] != nodes[a] for n, node in chosen for a in node.args)


@PROGRAMS
def test_what_stands_behind_a_max_pool_is_found(made):
    found = search(made(), limits=SearchLimits(max_kernels=1))
    assert found.families
    assert not [r for r in found.reasons if "refuted" in str(r)]
