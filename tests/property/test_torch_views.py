"""Random chains of views and operators, traced and compared with torch."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from mirage_py.frontend.torch.guards.calls import Signature
from mirage_py.frontend.torch.trace import trace_call
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.interpret.program import evaluate_program

SHAPES = st.sampled_from([(2, 3, 4), (6, 6), (1, 4, 3), (12,), (2, 1, 6), (4, 4), (3, 5), (5, 1)])


def factorisations(count: int) -> list[tuple[int, ...]]:
    """Ways to write a number as a product of up to three factors, in order."""
    pairs = [(a, count // a) for a in range(1, count + 1) if count % a == 0]
    triples = [(a, b, c // b) for a, c in pairs for b in range(1, c + 1) if c % b == 0]
    return [(count,), *pairs, *triples]


@st.composite
def step(draw, shape):
    """A step that fits a shape, as text and function."""
    rank = len(shape)
    axis = draw(st.integers(0, rank - 1))
    kinds = ["reshape", "flip_axes", "slice", "repeat", "interleave", "cat", "outer", "sum", "gram"]
    kind = draw(st.sampled_from(kinds))
    if math.prod(shape) > 48:
        kind = draw(st.sampled_from(["reshape", "flip_axes", "slice", "sum"]))
    if kind == "reshape":
        target = draw(st.sampled_from(factorisations(math.prod(shape))))
        return f"reshape {target}", lambda x: x.reshape(target)
    if kind == "flip_axes":
        order = draw(st.permutations(range(rank)))
        return f"permute {order}", lambda x: x.permute(*order)
    if kind == "slice":
        start = draw(st.integers(0, shape[axis] - 1))
        stop = draw(st.integers(start + 1, shape[axis]))
        every = draw(st.integers(1, 2))
        place = (*(slice(None),) * axis, slice(start, stop, every))
        return f"slice {axis} {start}:{stop}:{every}", lambda x: x[place]
    if kind == "repeat":
        times = [1] * rank
        times[axis] = 2
        return f"repeat {times}", lambda x: x.repeat(*times)
    if kind == "interleave":
        return f"interleave {axis}", lambda x: x.repeat_interleave(2, dim=axis)
    if kind == "cat":
        return f"cat {axis}", lambda x: torch.cat([x, x * 2], axis)
    if kind == "outer":
        return (
            f"x - x.T on {axis}",
            lambda x: x - x.transpose(axis, -1) if shape[axis] == shape[-1] else -x,
        )
    if kind == "gram":
        return "x @ x.T", lambda x: (x @ x.mT) * 0.1 if x.dim() > 1 else x * x.sum()
    return f"sum {axis}", lambda x: x.sum(axis, keepdim=True) + x


@st.composite
def chain(draw):
    shape = draw(SHAPES)
    x = torch.zeros(shape)
    names, steps = [str(shape)], []
    for _ in range(draw(st.integers(1, 5))):
        name, apply = draw(step(tuple(x.shape)))
        names.append(name)
        steps.append(apply)
        x = apply(x)
    return shape, names, steps


@given(chain())
def test_chains_agree_with_torch(case):
    shape, names, steps = case

    def fn(x):
        for apply in steps:
            x = apply(x)
        return x + 1

    x = torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape) * 0.37 - 1
    traced = trace_call(Signature.of(fn), {"x": x.float()})
    (result,) = evaluate_program(traced.program, {"x": x.numpy()}, FloatMeaning()).values()
    np.testing.assert_allclose(
        result, fn(x).numpy(), rtol=1e-9, atol=1e-9, err_msg=" | ".join(names)
    )
