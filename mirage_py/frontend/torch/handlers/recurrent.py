"""Cells of recurrent layers: one step, written out as torch documents it."""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.frontend.torch.handlers.contractions import linear
from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.handlers.shapes import chunk
from mirage_py.frontend.torch.lower.lowering import Lowering
from mirage_py.ugraph.building.views import NamedArray


@handles("lstm_cell.default")
def lstm_cell(
    t: Lowering,
    x: NamedArray,
    state: Sequence[NamedArray],
    of_input: NamedArray,
    of_state: NamedArray,
    input_bias: NamedArray | None = None,
    state_bias: NamedArray | None = None,
) -> tuple[NamedArray, NamedArray]:
    """The next h and c; ``state`` is h and c, gates are input, forget, cell and output."""
    hidden, cell = state
    gates = _both(t, x, hidden, (of_input, of_state), (input_bias, state_bias))
    add, forget, new, out = chunk(t, gates, 4, -1)
    kept = t.apply("mul", t.apply("sigmoid", forget), cell)
    added = t.apply("mul", t.apply("sigmoid", add), t.apply("tanh", new))
    cell = t.apply("add", kept, added)
    return t.apply("mul", t.apply("sigmoid", out), t.apply("tanh", cell)), cell


@handles("gru_cell.default")
def gru_cell(
    t: Lowering,
    x: NamedArray,
    hidden: NamedArray,
    of_input: NamedArray,
    of_state: NamedArray,
    input_bias: NamedArray | None = None,
    state_bias: NamedArray | None = None,
) -> NamedArray:
    """The next h: gates are reset, update and new, of which the state's share of the last is
    multiplied by the first.
    """
    mine = chunk(t, linear(t, x, of_input, input_bias), 3, -1)
    other = chunk(t, linear(t, hidden, of_state, state_bias), 3, -1)
    reset, update = (
        t.apply("sigmoid", t.apply("add", a, b)) for a, b in zip(mine[:2], other, strict=False)
    )
    new = t.apply("tanh", t.apply("add", mine[2], t.apply("mul", reset, other[2])))
    return t.apply("add", new, t.apply("mul", update, t.apply("sub", hidden, new)))


@handles("rnn_tanh_cell.default")
def rnn_tanh_cell(
    t: Lowering,
    x: NamedArray,
    hidden: NamedArray,
    of_input: NamedArray,
    of_state: NamedArray,
    input_bias: NamedArray | None = None,
    state_bias: NamedArray | None = None,
) -> NamedArray:
    """tanh of both products."""
    biases = input_bias, state_bias
    return t.apply("tanh", _both(t, x, hidden, (of_input, of_state), biases))


@handles("rnn_relu_cell.default")
def rnn_relu_cell(
    t: Lowering,
    x: NamedArray,
    hidden: NamedArray,
    of_input: NamedArray,
    of_state: NamedArray,
    input_bias: NamedArray | None = None,
    state_bias: NamedArray | None = None,
) -> NamedArray:
    """relu of both products."""
    biases = input_bias, state_bias
    return t.apply("relu", _both(t, x, hidden, (of_input, of_state), biases))


def _both(
    t: Lowering,
    x: NamedArray,
    hidden: NamedArray,
    weights: tuple[NamedArray, NamedArray],
    biases: tuple[NamedArray | None, NamedArray | None],
) -> NamedArray:
    """The products of the input and of the state with their weights, added up."""
    return t.apply(
        "add", linear(t, x, weights[0], biases[0]), linear(t, hidden, weights[1], biases[1])
    )
