"""Values under several names of dimensions."""

from __future__ import annotations

import torch
from torch.nn import functional

from mirage_py.frontend.spec import parse
from mirage_py.frontend.torch import trace
from mirage_py.pipeline.partition.partition import partition
from mirage_py.pipeline.partition.values import values_of, with_values_once
from mirage_py.pipeline.pipeline import normalise


def test_statistics_are_of_the_value_that_is_normalised():
    """What a convolution is added to has the names of its rows and columns, but for statistics."""

    def block(x, y, w, v):
        normed = functional.batch_norm(functional.conv2d(y, v), None, None, training=True)
        return functional.conv2d(x, w, padding=1) + normed

    shapes = (2, 4, 256, 256), (2, 3, 256, 256), (8, 4, 3, 3), (8, 3, 1, 1)
    given = [torch.empty(s, dtype=torch.bfloat16, device="meta") for s in shapes]
    program = normalise(trace(block, *given))
    numbers = [v.number for v in values_of(program)]
    assert len(dict.fromkeys(numbers)) == len(numbers)
    # In one part: what is computed twice is better read from memory.
    sums = [[n.op for n in part.nodes].count("sum") for part in partition(program).parts]
    assert sums == [0, 2]


def test_rows_of_scores_have_two_names():
    text = """T = 16, D = 8
X[T, D] : f32
Y[t, s] = sum[d](exp(X[t, d]) * exp(X[s, d]))"""
    program = parse(text)
    assert with_values_once(program) == program
