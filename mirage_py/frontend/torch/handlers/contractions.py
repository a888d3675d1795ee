"""Matmuls: every one is a sum of products over shared axes. Cells of recurrent layers are made of
them, as torch documents these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from string import ascii_letters

import torch

from mirage_py.frontend.torch.handlers.arithmetic import scaled
from mirage_py.frontend.torch.handlers.reductions import sum_, vector_norm
from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.handlers.shapes import agreeing, chunk
from mirage_py.frontend.torch.lower.lowering import BYTE_FLOATS, Lowering
from mirage_py.ugraph.building import views
from mirage_py.ugraph.building.named_array import NamedArray, reindex
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import dtype

# torch takes differences of so many rows one by one.
_FEW_ROWS = 25


@handles("matmul.default", "mm.default", "bmm.default", "_int_mm.default")
def matmul(t: Lowering, x: NamedArray, y: NamedArray) -> NamedArray:
    """x @ y; leading axes broadcast, vectors are rows on the left and columns on the right."""
    batch = ascii_letters[3 : 3 + max(len(x.axes), len(y.axes)) - 2] if _is_batched(x, y) else ""
    left = "c" if len(x.axes) == 1 else batch[len(batch) - len(x.axes) + 2 :] + "ac"
    right = "c" if len(y.axes) == 1 else batch[len(batch) - len(y.axes) + 2 :] + "cb"
    rows = "" if len(x.axes) == 1 else "a"
    columns = "" if len(y.axes) == 1 else "b"
    return contract(t, [left, right], batch + rows + columns, [x, y])


@handles("linear.default")
def linear(
    t: Lowering, x: NamedArray, weight: NamedArray, bias: NamedArray | None = None
) -> NamedArray:
    """x @ weight.T + bias."""
    rows = ascii_letters[2 : 1 + len(x.axes)]
    labels = "b" if len(weight.axes) == 1 else "ab"
    result = contract(t, [rows + "b", labels], rows + labels[:-1], [x, weight])
    return result if bias is None else t.apply("add", result, bias)


@handles("addmm.default", "baddbmm.default", "addmv.default")
def addmm(
    t: Lowering, add: NamedArray, x: NamedArray, y: NamedArray, beta: float = 1, alpha: float = 1
) -> NamedArray:
    """beta * add + alpha * (x @ y); of whole numbers by what is whole of both factors."""
    return _added(t, add, matmul(t, x, y), beta, alpha)


@handles("addbmm.default")
def addbmm(
    t: Lowering, add: NamedArray, x: NamedArray, y: NamedArray, beta: float = 1, alpha: float = 1
) -> NamedArray:
    """beta * add + alpha * (the sum of x[i] @ y[i])."""
    return _added(t, add, contract(t, ["dac", "dcb"], "ab", [x, y]), beta, alpha)


@handles("_cdist_forward.default")
def cdist(
    t: Lowering, x: NamedArray, y: NamedArray, p: float, mode: int | None = None
) -> NamedArray:
    """The distance of each row of x from each of y, of many by the product of both, as in torch."""
    rows, others = t.shape(x)[-2], t.shape(y)[-2]
    one = views.unsqueeze(t.builder, x, len(x.axes) - 1)
    other = views.unsqueeze(t.builder, y, len(y.axes) - 2)
    by_product = mode == 1 or (mode in (None, 0) and max(rows, others) > _FEW_ROWS)
    if p == 2 and by_product:
        squares = [sum_(t, t.apply("square", a), -1) for a in (one, other)]
        both = matmul(t, x, views.transpose(t.builder, y, _last_two_swapped(y)))
        total = t.apply("sub", t.apply("add", *squares), t.apply("mul", both, 2.0))
        return t.apply("sqrt", t.apply("maximum", total, 0.0))
    return vector_norm(t, t.apply("sub", one, other), p, -1)


def _last_two_swapped(x: NamedArray) -> list[int]:
    rank = len(x.axes)
    return [*range(rank - 2), rank - 1, rank - 2]


@handles("addr.default")
def addr(
    t: Lowering, add: NamedArray, x: NamedArray, y: NamedArray, beta: float = 1, alpha: float = 1
) -> NamedArray:
    """beta * add + alpha * (each of x times each of y)."""
    return _added(t, add, contract(t, ["a", "b"], "ab", [x, y]), beta, alpha)


def _added(
    t: Lowering, add: NamedArray, product: NamedArray, beta: float, alpha: float
) -> NamedArray:
    if not t.result_dtype().is_floating_point:
        beta, alpha = int(beta), int(alpha)
    total = scaled(t, product, alpha)
    # With beta = 0 torch does not read `add` at all.
    return t.array(total) if beta == 0 else t.apply("add", scaled(t, add, beta), total)


@handles("_scaled_mm.default")
def scaled_mm(
    t: Lowering,
    x: NamedArray,
    y: NamedArray,
    scale_x: NamedArray,
    scale_y: NamedArray,
    bias: NamedArray | None = None,
    scale_result: NamedArray | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> NamedArray:
    """(scale_x * x) @ (scale_y * y) + bias of float8; scales of tensors, channels or blocks."""
    del out_dtype, use_fast_accum  # the graph has the type; sums are in float32
    if scale_result is not None or t.result_dtype() in BYTE_FLOATS:
        raise t.refuse(
            "_scaled_mm with a result of float8 is not supported",
            repair="take out_dtype=torch.bfloat16, and quantise behind it",
        )
    inner = t.shape(scale_x)[-1:]
    in_groups = len(scale_y.axes) == 2 and inner == t.shape(scale_y)[:1] != (1,)
    multiply = _scaled_in_groups if in_groups else _scaled_after
    result = multiply(t, x, y, scale_x, scale_y)
    result = result if bias is None else t.apply("add", result, bias)
    return NamedArray(t.builder.cast(result.node, dtype(str(t.result_dtype()))), result.axes)


def _scaled_after(
    t: Lowering, x: NamedArray, y: NamedArray, scale_x: NamedArray, scale_y: NamedArray
) -> NamedArray:
    """A product, times scales of tensors or of its rows and columns."""
    result = matmul(t, x, y)
    for scale, kept in ((scale_x, (t.shape(x)[0], 1)), (scale_y, (1, t.shape(y)[1]))):
        if prod(t.shape(scale)) != 1 and t.shape(scale) != kept:
            raise t.refuse(
                f"_scaled_mm with scales of shape {list(t.shape(scale))} is not supported",
                why="scales are of a whole tensor, of each row and column, or of blocks of both",
                repair="write scales of blocks as factors of what is multiplied",
            )
        whole = prod(t.shape(scale)) == 1
        result = t.apply("mul", result, views.reshape(t.builder, scale, ()) if whole else scale)
    return result


def _scaled_in_groups(
    t: Lowering, x: NamedArray, y: NamedArray, scale_x: NamedArray, scale_y: NamedArray
) -> NamedArray:
    """The sum over groups of inner positions of products of each, which have two factors."""
    (rows, inner), columns = t.shape(x), t.shape(y)[1]
    groups = t.shape(scale_x)[1]
    one = views.reshape(t.builder, x, (rows, groups, inner // groups))
    other = views.reshape(t.builder, y, (groups, inner // groups, columns))
    factors = [_of_blocks(t, scale_x, 0, rows), _of_blocks(t, scale_y, 1, columns)]
    return contract(t, ["agk", "gkb", "ag", "gb"], "ab", [one, other, *factors])


def _of_blocks(t: Lowering, scale: NamedArray, axis: int, extent: int) -> NamedArray:
    """A scale for each position of an axis, from one for each block."""
    blocks = t.shape(scale)[axis]
    if blocks == extent:
        return scale
    if extent % blocks:
        raise t.refuse(
            f"_scaled_mm with scales of {blocks} blocks of {extent}",
            why="blocks are of one size",
            repair="pad the operands to whole blocks",
        )
    dim = t.builder.fresh_dim("i", extent)
    position = ix.dim(dim) // (extent // blocks)
    axes = (*scale.axes[:axis], (dim,), *scale.axes[axis + 1 :])
    return NamedArray(reindex(t.builder, scale, {axis: position}), axes)


@handles("einsum.default")
def einsum(
    t: Lowering, equation: str, operands: Sequence[NamedArray], path: object = None
) -> NamedArray:
    """Einstein's notation, with an ellipsis for axes that broadcast."""
    del path  # the order of contraction is the search's to choose
    inputs, _, result = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    free = [c for c in ascii_letters if c not in equation]
    width = max(
        len(a.axes) - len(term) + 3 if "..." in term else 0
        for term, a in zip(terms, operands, strict=True)
    )
    extra = "".join(free[:width])
    spelled = [
        term.replace("...", extra[width - (len(a.axes) - len(term) + 3) :])
        for term, a in zip(terms, operands, strict=True)
    ]
    if "->" not in equation:
        letters = "".join(terms).replace(".", "")
        once = sorted(c for c in dict.fromkeys(letters) if letters.count(c) == 1)
        result = "".join(("...", *once)) if width else "".join(once)
    return contract(t, spelled, result.replace("...", extra), list(operands))


def sums(equation: str) -> bool:
    """Whether a notation of Einstein's sums at all: else torch takes products of elements."""
    inputs, arrow, result = equation.replace(" ", "").partition("->")
    letters = [c for c in inputs if c.isalpha()]
    return len(letters) > len(set(letters)) if not arrow else any(c not in result for c in letters)


def contract(
    t: Lowering, terms: Sequence[str], result: str, operands: Sequence[NamedArray]
) -> NamedArray:
    """The product of the operands, summed over the labels that are not in ``result``.

    ``terms`` names the axes of each operand, one letter each. All operands are laid out over all
    labels; then it is broadcasting, a product and a sum, and the builder finds the contractions.
    """
    labels = tuple(dict.fromkeys((*result, *"".join(terms))))
    operands = [_without_cast(t, array, operands) for array in operands]
    spread = [
        _over_labels(t, term, array, labels) for term, array in zip(terms, operands, strict=True)
    ]
    arrays = views.broadcast(t.builder, spread)
    product = arrays[0].node
    for array in arrays[1:]:
        product = t.builder.apply("mul", product, array.node)
    axes = arrays[0].axes
    summed = [
        d for label, axis in zip(labels, axes, strict=True) for d in axis if label not in result
    ]
    return NamedArray(t.builder.sum(product, summed), axes[: len(result)])


def _without_cast(t: Lowering, array: NamedArray, operands: Sequence[NamedArray]) -> NamedArray:
    """An operand cast to the type that another one has in memory, as it was before: matmuls round
    to that type themselves. So attention may normalise after the matmul, whatever type a softmax is
    cast to before it.
    """
    nodes = t.builder.nodes
    node = nodes[array.node]
    if node.op != "cast":
        return array
    below = nodes[node.args[0]]
    # Integers are cast by other rules.
    if below.op == "load" and not t.builder.inputs[below.access.tensor].dtype.is_float:
        return array
    others = (nodes[other.node] for other in operands)
    stored = [t.builder.inputs[n.access.tensor].dtype for n in others if n.op == "load"]
    if not any(dtype.is_half and dtype == node.attr for dtype in stored):
        return array
    return NamedArray(node.args[0], array.axes)


def _over_labels(t: Lowering, term: str, array: NamedArray, labels: Sequence[str]) -> NamedArray:
    """The array with one axis per label, of extent 1 for labels it does not have."""
    letters = list(term)
    for label in dict.fromkeys(letters):
        while letters.count(label) > 1:
            # A label twice in one operand reads its diagonal.
            second = len(letters) - 1 - letters[::-1].index(label)
            array = agreeing(t, array, letters.index(label), second)
            del letters[second]
    order = sorted(range(len(letters)), key=lambda i: labels.index(letters[i]))
    axes = {letters[i]: array.axes[i] for i in order}
    return NamedArray(array.node, tuple(axes.get(label, ()) for label in labels))


def _is_batched(x: NamedArray, y: NamedArray) -> bool:
    return max(len(x.axes), len(y.axes)) > 2


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


def _rnn_cell(function: str) -> Callable[..., NamedArray]:
    def cell(
        t: Lowering,
        x: NamedArray,
        hidden: NamedArray,
        of_input: NamedArray,
        of_state: NamedArray,
        input_bias: NamedArray | None = None,
        state_bias: NamedArray | None = None,
    ) -> NamedArray:
        """tanh or relu of both products."""
        biases = input_bias, state_bias
        return t.apply(function, _both(t, x, hidden, (of_input, of_state), biases))

    return cell


handles("rnn_tanh_cell.default")(_rnn_cell("tanh"))
handles("rnn_relu_cell.default")(_rnn_cell("relu"))


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
