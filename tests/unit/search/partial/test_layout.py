"""Layouts move digits between axes, and back."""

from __future__ import annotations

import numpy as np
import pytest

from mirage_py.errors import InputError
from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.evaluation import over_field
from mirage_py.search.partial.layout import SWAP, WHOLE, Layout, Move, layout_after
from mirage_py.ugraph.field import FieldArray

_SHAPE = (2, 6, 8)


@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        ((Move(0, 2, WHOLE),), "b (a c)"),
        ((Move(2, 0, 2, minor=True, last=True),), "(a z) b y"),
        ((Move(2, 2, 2, minor=True),), "a b (z y)"),
        ((Move(1, 2, SWAP),), "a c b"),
        ((Move(2, 0, 4), Move(1, 0, 2)), "(B C a) b z"),
    ],
)
def test_moves_are_what_numpy_does(moves: tuple[Move, ...], expected: str):
    layout = layout_after(_SHAPE, moves)
    x = np.arange(96).reshape(_SHAPE)
    by_hand = {
        "b (a c)": x.transpose(1, 0, 2).reshape(1, 6, 16),
        "(a z) b y": x.reshape(2, 6, 4, 2).transpose(0, 3, 1, 2).reshape(4, 6, 4),
        "a b (z y)": x.reshape(2, 6, 4, 2).transpose(0, 1, 3, 2).reshape(2, 6, 8),
        "a c b": x.transpose(0, 2, 1),
        "(B C a) b z": x.reshape(2, 2, 3, 4, 2).transpose(1, 3, 0, 2, 4).reshape(16, 3, 2),
    }[expected]
    assert np.array_equal(layout.of_field(FieldArray(x, None)).p, by_hand)


@pytest.mark.parametrize("number", range(12))
def test_graphs_agree_with_arrays_and_lead_back(number: int):
    rng = np.random.default_rng(number)
    layout = Layout.of(_SHAPE)
    for _ in range(3):
        axis, to, factor = (int(n) for n in (rng.integers(3), rng.integers(3), rng.integers(4)))
        move = Move(axis, to, factor, bool(rng.integers(2)), bool(rng.integers(2)))
        if axis != to or factor > 1:
            try:
                layout = layout.moved(move)
            except InputError:
                continue
    b = GraphBuilder()
    x = b.input("x", _SHAPE)
    there = layout.forward(b, x)
    graph = b.build(there, layout.to_digits(b, there))
    array = FieldArray(rng.integers(0, 1000, _SHAPE), None)
    forward, digits = over_field(graph, [array], None)  # type: ignore[arg-type]
    assert np.array_equal(forward.p, layout.of_field(array).p)
    assert np.array_equal(digits.p.reshape(_SHAPE), array.p)


def test_what_does_not_divide_is_refused():
    with pytest.raises(InputError):
        layout_after(_SHAPE, (Move(1, 0, 4),))
    with pytest.raises(InputError):
        layout_after(_SHAPE, (Move(2, 0, 8),))
