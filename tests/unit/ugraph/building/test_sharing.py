"""Networks of views: what a view of a large value copies is bounded, and its values are right."""

from __future__ import annotations

import numpy as np
import pytest
import samples

from mirage_py.pipeline.partition.limits import PartitionLimits
from mirage_py.ugraph.building import sharing, views
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.views import NamedArray
from mirage_py.ugraph.checks.validate import validate_program
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.dtypes import F32

SIZE = 6


def shifted(b, x):
    """Rows and columns moved, as in shifted windows."""
    return views.roll(b, views.roll(b, x, 2, 0), 2, 1)


def padded(b, x):
    """A margin of ones that windows cut across, and the middle again."""
    margin = NamedArray(b.const(1.0), ((), *x.axes[1:]))
    margin = views.expand(b, margin, (2, SIZE))
    wide = views.concat(b, [margin, x, margin], 0)
    cut = views.reshape(b, wide, (2, 5, SIZE))
    bent = NamedArray(b.apply("tanh", cut.node), cut.axes)
    return views.slice_axis(b, views.reshape(b, bent, (SIZE + 4, SIZE)), 0, 1, SIZE + 1)


def sliced(b, x):
    """Every second row in front of the others."""
    return views.concat(b, [views.slice_axis(b, x, 0, n, None, 2) for n in (0, 1)], 0)


MOVES = {
    shifted: lambda x: np.roll(x, (2, 2), (0, 1)),
    padded: lambda x: np.tanh(np.pad(x, ((2, 2), (0, 0)), constant_values=1.0))[1 : SIZE + 1],
    sliced: lambda x: np.concatenate([x[::2], x[1::2]]),
}


def network(move, layers):
    """Layers of products and norms, each of them reading the last at other places."""
    b = ProgramBuilder("network")
    b.input("X", (SIZE, SIZE), F32)
    b.input("W", (SIZE, SIZE), F32)
    x = views.from_input(b, "X")
    for _ in range(layers):
        moved = move(b, x)
        w = views.from_input(b, "W")
        moved, w = views.broadcast(b, [views.unsqueeze(b, moved, 2), views.unsqueeze(b, w, 0)])
        product = b.apply("mul", moved.node, w.node)
        product = b.sum(product, moved.axes[1])
        norm = b.apply("add", b.mean(b.apply("square", product), moved.axes[2]), b.const(1.0))
        normed = NamedArray(b.apply("div", product, norm), (moved.axes[0], moved.axes[2]))
        for _ in range(4):
            normed = NamedArray(b.apply("sin", b.apply("add", normed.node, norm)), normed.axes)
        first, second = views.broadcast(b, [x, normed])
        x = NamedArray(b.apply("add", first.node, second.node), first.axes)
    views.output(b, "Y", x, F32)
    return b.build()


def expected(move, layers, given):
    x, w = given["X"], given["W"]
    for _ in range(layers):
        product = MOVES[move](x) @ w
        norm = (product**2).mean(1, keepdims=True) + 1.0
        normed = product / norm
        for _ in range(4):
            normed = np.sin(normed + norm)
        x = x + normed
    return x


@pytest.mark.parametrize("move", MOVES)
def test_a_network_of_views_grows_by_its_layers(move):
    few, more, most = (network(move, layers) for layers in (4, 8, 12))
    assert len(most.nodes) - len(more.nodes) == len(more.nodes) - len(few.nodes)
    validate_program(few)
    inputs = samples.float_inputs(few)
    found = evaluate_program(few, inputs, FloatMeaning())["Y"]
    np.testing.assert_allclose(found, expected(move, 4, inputs), atol=1e-9)


@pytest.mark.parametrize("move", MOVES)
def test_a_small_program_is_copied_and_not_cut(move):
    program = network(move, 1)
    assert all(node.op != "read" for node in program.nodes)


def test_what_is_copied_is_what_a_search_takes_at_once():
    assert sharing._COPIED == PartitionLimits().operators


def branches(own: bool, wide: int = 2, *, is_cut: bool = True):
    """Two matmuls, or one and its halves, beside each other: what is stored of them."""
    b = ProgramBuilder("branches")
    b.input("X", (SIZE, SIZE), F32)
    b.input("W", (SIZE, SIZE), F32)

    image = views.from_input(b, "X")
    image = NamedArray(b.apply("exp", image.node), image.axes)
    if is_cut:
        b.stored(image.node)

    def product(name: str) -> NamedArray:
        x, w = image, views.from_input(b, name)
        first = views.broadcast(b, [views.unsqueeze(b, x, 2), views.unsqueeze(b, w, 0)])
        node = b.matmul(first[0].node, first[1].node, first[0].axes[1])
        return NamedArray(b.apply("tanh", node), (first[0].axes[0], first[1].axes[2]))

    if own:
        b.input("V", (SIZE, wide), F32)
        pieces = [product("V"), product("W")]
    else:
        whole = product("W")
        half = SIZE // 2
        pieces = [views.slice_axis(b, whole, 1, n * half, (n + 1) * half) for n in (1, 0)]
    views.output(b, "Y", views.concat(b, pieces, 1), F32)
    return b.build()


@pytest.mark.parametrize(
    ("own", "wasted", "read"), [(True, 0.0, 2), (True, 160.0, 1), (True, 1e4, 0), (False, 0.0, 0)]
)
def test_pieces_with_large_matmuls_are_stored(monkeypatch, own, wasted, read):
    """An Inception block multiplied by each weight for all 512 columns of its result, and was
    refused; halves of one matmul are one tile. Of six columns beside two 144 operations would be
    for nothing, of two beside six 432.
    """
    monkeypatch.setattr(sharing, "_WASTED", wasted)
    monkeypatch.setattr(sharing, "_OF_AN_ELEMENT", 0.0)
    program = branches(own)
    validate_program(program)
    assert sum(node.op == "read" for node in program.nodes) == read
    draw = np.random.default_rng(0)
    x, v, w = (draw.normal(size=shape) for shape in ((SIZE, SIZE), (SIZE, 2), (SIZE, SIZE)))
    found = evaluate_program(program, {"X": x, "V": v, "W": w}, FloatMeaning())["Y"]
    first, half = np.tanh(np.exp(x) @ w), SIZE // 2
    second = np.concatenate([first[:, half:], first[:, :half]], 1)
    wanted = np.concatenate([np.tanh(np.exp(x) @ v), first], 1) if own else second
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_pieces_of_a_program_that_is_not_cut_or_as_quickly_computed_as_read_are_not_stored(
    monkeypatch,
):
    """Keys beside a cache, and scores over two sets of keys, were cut from their attention, which
    had no plan then.
    """
    monkeypatch.setattr(sharing, "_WASTED", 0.0)
    assert all(n.op != "read" for n in branches(True).nodes)
    monkeypatch.setattr(sharing, "_OF_AN_ELEMENT", 0.0)
    assert any(n.op == "read" for n in branches(True).nodes)
    assert all(n.op != "read" for n in branches(True, is_cut=False).nodes)
