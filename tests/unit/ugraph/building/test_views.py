from __future__ import annotations

import numpy as np
import pytest
import samples

from mirage_py.errors import InputError
from mirage_py.ugraph.building import views
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.views import NamedArray
from mirage_py.ugraph.checks.validate import validate_program
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.dtypes import F32

# On a load, on a computed value, and on a value with a reduction inside it.
SOURCES = ("load", "computed", "reduced")


def source(b, name, shape, kind):
    """A named array of that shape, and what NumPy says it is."""
    if kind == "reduced":
        b.input(name, (*shape, 3), F32)
        x = views.from_input(b, name)
        (last,) = x.axes[-1]
        total = b.sum(b.apply("square", x.node), [last])
        return NamedArray(total, x.axes[:-1]), lambda i: (i[name] ** 2).sum(-1)
    b.input(name, shape, F32)
    x = views.from_input(b, name)
    if kind == "load":
        return x, lambda i: i[name]
    bent = b.apply("tanh", b.apply("add", x.node, b.const(0.5)))
    return NamedArray(bent, x.axes), lambda i: np.tanh(i[name] + 0.5)


def check(b, array, expected):
    """The array as the output of a valid program, against NumPy."""
    views.output(b, "Y", array, F32)
    program = b.build()
    validate_program(program)
    inputs = samples.float_inputs(program)
    found = evaluate_program(program, inputs, FloatMeaning())["Y"]
    wanted = expected(inputs)
    assert found.shape == wanted.shape
    assert np.allclose(found, wanted)
    return program


UNARY = {
    "transpose": (
        (2, 3, 4),
        lambda b, x: views.transpose(b, x, (2, 0, -2)),
        lambda x: x.transpose(2, 0, 1),
    ),
    "merge": ((2, 3, 4), lambda b, x: views.reshape(b, x, (6, 4)), lambda x: x.reshape(6, 4)),
    "split": ((12, 5), lambda b, x: views.reshape(b, x, (3, -1, 5)), lambda x: x.reshape(3, 4, 5)),
    "flatten": ((2, 1, 3), lambda b, x: views.reshape(b, x, (-1,)), lambda x: x.reshape(-1)),
    "split and merge": (
        (4, 6, 5),
        lambda b, x: views.reshape(b, x, (2, 12, 5)),
        lambda x: x.reshape(2, 12, 5),
    ),
    "cross": ((2, 3, 5), lambda b, x: views.reshape(b, x, (3, 2, 5)), lambda x: x.reshape(3, 2, 5)),
    "cross deeply": (
        (4, 6, 10),
        lambda b, x: views.reshape(b, x, (15, 16)),
        lambda x: x.reshape(15, 16),
    ),
    "units": (
        (1, 4, 1),
        lambda b, x: views.reshape(b, x, (2, 1, 2, 1, 1)),
        lambda x: x.reshape(2, 1, 2, 1, 1),
    ),
    "heads and back": (
        (2, 3, 12),
        lambda b, x: views.reshape(
            b, views.transpose(b, views.reshape(b, x, (2, 3, 4, 3)), (0, 2, 1, 3)), (2, 4, 9)
        ),
        lambda x: x.reshape(2, 3, 4, 3).transpose(0, 2, 1, 3).reshape(2, 4, 9),
    ),
    "transposed merge": (
        (4, 6),
        lambda b, x: views.reshape(b, views.transpose(b, x, (1, 0)), (24,)),
        lambda x: x.T.reshape(24),
    ),
    "slice": ((3, 10), lambda b, x: views.slice_axis(b, x, 1, 2, 7), lambda x: x[:, 2:7]),
    "strided slice": (
        (10, 3),
        lambda b, x: views.slice_axis(b, x, 0, 1, None, 4),
        lambda x: x[1::4],
    ),
    "slice from the end": (
        (10,),
        lambda b, x: views.slice_axis(b, x, -1, -4, -1),
        lambda x: x[-4:-1],
    ),
    "slice of one": ((10, 3), lambda b, x: views.slice_axis(b, x, 0, 4, 5), lambda x: x[4:5]),
    "slice of a merged axis": (
        (4, 6),
        lambda b, x: views.slice_axis(b, views.reshape(b, x, (24,)), 0, 5, 20, 3),
        lambda x: x.reshape(24)[5:20:3],
    ),
    "select": ((3, 4), lambda b, x: views.select(b, x, 1, -1), lambda x: x[:, -1]),
    "tile": ((2, 3), lambda b, x: views.repeat(b, x, (2, 1, 4)), lambda x: np.tile(x, (2, 1, 4))),
    "repeat_interleave": (
        (2, 3),
        lambda b, x: views.repeat_interleave(b, x, 4, 1),
        lambda x: np.repeat(x, 4, 1),
    ),
    "expand": (
        (3, 1),
        lambda b, x: views.expand(b, x, (2, -1, 4)),
        lambda x: np.broadcast_to(x, (2, 3, 4)),
    ),
    "expand, then reshape": (
        (3, 1),
        lambda b, x: views.reshape(b, views.expand(b, x, (3, 4)), (6, 2)),
        lambda x: np.broadcast_to(x, (3, 4)).reshape(6, 2),
    ),
    "slice of a repetition": (
        (2, 3),
        lambda b, x: views.slice_axis(b, views.repeat(b, x, (1, 3)), 1, 2, 8),
        lambda x: np.tile(x, (1, 3))[:, 2:8],
    ),
    "unsqueeze": ((3, 4), lambda b, x: views.unsqueeze(b, x, -1), lambda x: x[..., None]),
    "squeeze": ((3, 1, 4, 1), views.squeeze, lambda x: x.squeeze()),
    "squeeze one": ((3, 1, 4, 1), lambda b, x: views.squeeze(b, x, 1), lambda x: x.squeeze(1)),
    "squeeze none": ((3, 1, 4), lambda b, x: views.squeeze(b, x, 0), lambda x: x),
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("case", sorted(UNARY))
def test_views_of_one_array(case, kind):
    shape, view, reference = UNARY[case]
    b = ProgramBuilder("p")
    x, value = source(b, "X", shape, kind)
    check(b, view(b, x), lambda i: reference(value(i)))


@pytest.mark.parametrize("kind", SOURCES)
def test_concat(kind):
    b = ProgramBuilder("p")
    x, value_x = source(b, "X", (2, 3), kind)
    y, value_y = source(b, "Z", (2, 1), kind)
    w, value_w = source(b, "W", (2, 5), "load")
    joined = views.concat(b, [x, y, w, x], -1)
    check(
        b,
        joined,
        lambda i: np.concatenate([value_x(i), value_y(i), value_w(i), value_x(i)], 1),
    )


def test_concat_of_a_rotated_half():
    b = ProgramBuilder("p")
    x, _ = source(b, "X", (2, 8), "load")
    left, right = views.slice_axis(b, x, 1, 0, 4), views.slice_axis(b, x, 1, 4, 8)
    turned = NamedArray(b.apply("neg", right.node), right.axes)
    check(
        b,
        views.concat(b, [turned, left], 1),
        lambda i: np.concatenate([-i["X"][:, 4:], i["X"][:, :4]], 1),
    )


def test_concat_over_a_split_axis():
    b = ProgramBuilder("p")
    x, _ = source(b, "X", (4, 6), "load")
    y, _ = source(b, "Z", (2, 6), "load")
    folded = views.reshape(b, views.reshape(b, x, (2, 2, 6)), (4, 6))
    check(b, views.concat(b, [folded, y], 0), lambda i: np.concatenate([i["X"], i["Z"]]))


BINARY = {
    "same shape": ((3, 4), (3, 4)),
    "row": ((3, 4), (4,)),
    "column": ((3, 1), (1, 4)),
    "scalar": ((3, 4), (1,)),
    "more axes": ((2, 1, 4), (3, 1)),
}


@pytest.mark.parametrize("case", sorted(BINARY))
@pytest.mark.parametrize("kind", SOURCES)
def test_broadcast(case, kind):
    b = ProgramBuilder("p")
    left, right = BINARY[case]
    x, value_x = source(b, "X", left, kind)
    y, value_y = source(b, "Z", right, kind)
    x, y = views.broadcast(b, [x, y])
    assert x.axes == y.axes
    total = NamedArray(b.apply("sub", x.node, y.node), x.axes)
    check(b, total, lambda i: value_x(i) - value_y(i))


def subtracted(b, x, y):
    x, y = views.broadcast(b, [x, y])
    return NamedArray(b.apply("sub", x.node, y.node), x.axes)


def test_a_matrix_minus_its_transpose():
    b = ProgramBuilder("p")
    x, _ = source(b, "X", (4, 4), "load")
    check(b, subtracted(b, x, views.transpose(b, x, (1, 0))), lambda i: i["X"] - i["X"].T)


def test_outer_difference_of_a_vector_with_itself():
    b = ProgramBuilder("p")
    x, _ = source(b, "X", (4,), "load")
    column = views.unsqueeze(b, x, 1)
    check(b, subtracted(b, column, x), lambda i: i["X"][:, None] - i["X"])


@pytest.mark.parametrize(
    ("left", "right"), [((2, 6), (12,)), ((2, 6), (4, 3)), ((2, 6), (6, 2)), ((2, 3), (3, 2))]
)
def test_axes_divided_differently(left, right):
    b = ProgramBuilder("p")
    total = int(np.prod(left))
    x, _ = source(b, "X", left, "load")
    y, _ = source(b, "Z", right, "load")
    flat = [views.reshape(b, a, (total,)) for a in (x, y)]
    program = check(b, subtracted(b, *flat), lambda i: i["X"].reshape(-1) - i["Z"].reshape(-1))
    # A common refinement needs no quotients in the indices.
    if (left, right) != ((2, 3), (3, 2)):
        assert not any("//" in str(n.attr) for n in program.nodes if n.op == "load")


def test_grouped_heads_read_without_quotients():
    b = ProgramBuilder("p")
    q, _ = source(b, "Q", (8, 5), "load")
    k, _ = source(b, "K", (2, 5), "load")
    shared = views.repeat_interleave(b, k, 4, 0)
    program = check(b, subtracted(b, q, shared), lambda i: i["Q"] - np.repeat(i["K"], 4, 0))
    assert not any("//" in str(n.attr) or "%" in str(n.attr) for n in program.nodes)


def test_retarget_swaps_dimensions():
    b = ProgramBuilder("p")
    x, _ = source(b, "X", (4, 4), "computed")
    swapped = views.retarget(b, x, (x.axes[1], x.axes[0]))
    back = NamedArray(swapped.node, x.axes)
    check(b, back, lambda i: np.tanh(i["X"] + 0.5).T)


def test_select_from_a_split_of_three():
    b = ProgramBuilder("p")
    x, _ = source(b, "X", (2, 24), "load")
    parts = views.reshape(b, x, (2, 3, 4, 2))
    program = check(b, views.select(b, parts, 1, 2), lambda i: i["X"].reshape(2, 3, 4, 2)[:, 2])
    assert not any("//" in str(n.attr) for n in program.nodes)


ERRORS = {
    "no permutation": lambda b, x: views.transpose(b, x, (0, 0)),
    "axis 2": lambda b, x: views.select(b, x, 2, 0),
    "outside axis": lambda b, x: views.select(b, x, 0, 3),
    "cannot become": lambda b, x: views.reshape(b, x, (5, 2)),
    "cannot become \\[-2": lambda b, x: views.reshape(b, x, (-2, -6)),
    "at most one": lambda b, x: views.reshape(b, x, (-1, -1)),
    "cannot be expanded to 1": lambda b, x: views.expand(b, x, (4,)),
    "only an axis of extent 1": lambda b, x: views.expand(b, x, (6, 4)),
    "one positive count": lambda b, x: views.repeat(b, x, (2,)),
    "cannot repeat 0": lambda b, x: views.repeat_interleave(b, x, 0, 0),
    "step -1": lambda b, x: views.slice_axis(b, x, 0, 0, None, -1),
    "is empty": lambda b, x: views.slice_axis(b, x, 0, 2, 2),
    "nothing to concatenate": lambda b, x: views.concat(b, [], 0),
    "cannot be concatenated": lambda b, x: views.concat(b, [x, views.transpose(b, x, (1, 0))], 0),
    "do not broadcast": lambda b, x: views.broadcast(b, [x, views.transpose(b, x, (1, 0))]),
    "has extent 3, not 4": lambda b, x: views.retarget(b, x, (x.axes[1], x.axes[1])),
    "2 axes cannot become 1": lambda b, x: views.retarget(b, x, (x.axes[1],)),
}


@pytest.mark.parametrize("message", sorted(ERRORS))
def test_impossible_views(message):
    b = ProgramBuilder("p")
    x, _ = source(b, "X", (3, 4), "load")
    with pytest.raises(InputError, match=message):
        ERRORS[message](b, x)
