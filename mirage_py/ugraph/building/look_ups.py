"""Look-ups: arrays read at positions that are whole numbers of the program, such as token ids.

Like every other view a look-up is an index expression of loads. A computed value is looked up by
computing it at the positions: log_softmax(x)[n, y[n]] is x[n, y[n]] less the logarithm of the sum.
"""

from __future__ import annotations

from collections.abc import Mapping

from mirage_py.errors import UnsupportedError
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.named_array import NamedArray, axis_extent, reindex
from mirage_py.ugraph.building.tables import looked_up
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr

# What chooses one of two positions, and the comparison that says when it is the first.
_CHOICES = {"maximum": "ge", "minimum": "le"}
_WORD_BITS = 31


def look_up(builder: ProgramBuilder, array: NamedArray, at: Mapping[int, int]) -> int:
    """The array's node with the position along some axes given by nodes, which are whole numbers
    taken modulo the extent: negative ones count from the back.

    Raises UnsupportedError for a number that no index expression gives.
    """
    for axis, number in at.items():
        node = builder.nodes[number]
        if node.op == "where" or node.op in _CHOICES:
            condition, first, second = (
                node.args
                if node.op == "where"
                else (builder.apply(_CHOICES[node.op], *node.args), *node.args)
            )
            chosen = [look_up(builder, array, {**at, axis: a}) for a in (first, second)]
            return builder.apply("where", condition, *chosen)
    if len(array.axes) == len(at) == 1 and builder.nodes[number].op in ("bit_and", "shift_right"):
        found = looked_up(builder, array, number)
        if found is not None:
            return found
    flat = {
        axis: _inside(builder, position_of(builder, number), axis_extent(builder, array.axes[axis]))
        for axis, number in at.items()
    }
    return reindex(builder, array, flat)


def is_position(builder: ProgramBuilder, number: int) -> bool:
    """Whether an index expression gives the numbers, so that they can be looked up."""
    node = builder.nodes[number]
    if node.op == "where" or node.op in _CHOICES:
        return all(is_position(builder, a) for a in node.args[-2:])
    try:
        position_of(builder, number)
    except UnsupportedError:
        return False
    return True


def _inside(builder: ProgramBuilder, position: IndexExpr, extent: int) -> IndexExpr:
    if not position.tensors():  # remainders of known positions are taken of positive ones only
        low, _ = position.bounds(builder.sizes)
        position = position + max(0, -(low // extent)) * extent
    builder.looked_up[position, extent] = None
    return ix.simplify(position % extent, builder.sizes)


def position_of(builder: ProgramBuilder, number: int) -> IndexExpr:
    """A node as a position. Raises UnsupportedError for a number that no index expression gives."""
    node = builder.nodes[number]
    if isinstance(node.attr, IndexExpr):
        return node.attr
    if node.op == "const" and isinstance(node.attr, float) and node.attr.is_integer():
        return ix.const(int(node.attr))
    if node.op == "load" and not builder.inputs[node.access.tensor].dtype.is_float:
        return ix.data(node.access.tensor, node.access.index)
    if node.op in ("add", "sub", "mul"):
        left, right = (position_of(builder, a) for a in node.args)
        if node.op != "mul":
            return left + right if node.op == "add" else left - right
        for x, factor in ((left, right), (right, left)):
            if factor.op == "const":
                return x * factor.value
    if node.op in ("bit_and", "shift_right"):
        bits = builder.nodes[node.args[1]]
        count = int(bits.attr) if bits.op == "const" and isinstance(bits.attr, float) else -1
        if node.op == "bit_and" and count >= 0 and count & (count + 1) == 0:
            return position_of(builder, node.args[0]) % (count + 1)
        if node.op == "shift_right" and 0 <= count < _WORD_BITS:
            return position_of(builder, node.args[0]) // (1 << count)
    raise UnsupportedError(
        f"a position that '{node.op}' computes",
        where=builder.name,
        why="positions are elements of an input, with + - and * of whole numbers, and // and % by "
        "powers of two",
        repair="compute the positions outside, and pass them as an argument",
    )
