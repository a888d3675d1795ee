"""Abstraction of a program to terms: what each output computes, over loop and tile axes.

Terms are the abstract expressions of the Mirage paper. A dimension d that some reduction sums over
has two axes: "d.l" counts the iterations of a loop over d, and "d.t" is what one iteration sees. A
sum over all of d is the sum over both, so the e-graph knows every way to divide it between a tile
and a loop. Other dimensions are pointwise in every tensor: one axis is enough, and whether it is on
a grid changes nothing in the algebra. The outer half of a split dimension is either on the grid or
unsplit in one block: it has a tile and no loop. Source: Mirage (OSDI'25), section 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mirage_py.axioms.terms.term import Term, apply, const, leaf, reduce, size
from mirage_py.errors import UnsupportedError
from mirage_py.reasons import Code
from mirage_py.search.space.leaves import TENSOR_LEAVES, Leaf, leaf_name, leaves_of
from mirage_py.ugraph.ir.node import REDUCING, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.operators import ELEMENTWISE, operator

AxesOf = Callable[[tuple[str, ...]], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Abstraction:
    """One root per output; ``leaf_axes`` and ``axes`` are what saturation wants to know.

    ``loopable`` are the dimensions with a loop axis.
    """

    roots: tuple[Term, ...]
    leaves: tuple[Leaf, ...]
    leaf_axes: Mapping[str, tuple[str, ...]]
    axes: tuple[str, ...]
    loopable: tuple[str, ...]


def loop_axis(dim: str) -> str:
    """The axis that counts the iterations of a loop over a dimension."""
    return f"{dim}.l"


def tile_axis(dim: str) -> str:
    """The axis of what one iteration, or the whole block, sees of a dimension."""
    return f"{dim}.t"


def reduced_dims(program: Program) -> tuple[str, ...]:
    """The dimensions that some node reduces, in the program's order."""
    found = {d for n in program.nodes if n.op in REDUCING for d in n.reduced}
    return tuple(d for d in program.dim_names if d in found)


def loopable_dims(program: Program, splits: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The reduced dimensions that a loop can go over: all but ``splits``, the outer half of a split
    one.
    """
    return tuple(d for d in reduced_dims(program) if d not in splits)


def abstract(program: Program, splits: tuple[str, ...] = ()) -> Abstraction:
    """The terms of a program's outputs. A cast is the value it rounds.

    ``splits`` names the outer halves of split dimensions.
    """
    loopable = loopable_dims(program, splits)

    def axes_of(dims: tuple[str, ...]) -> tuple[str, ...]:
        split = [(loop_axis(d), tile_axis(d)) if d in loopable else (tile_axis(d),) for d in dims]
        return tuple(axis for axes in split for axis in axes)

    terms: list[Term] = []
    for node in program.nodes:
        terms.append(node_term(node, tuple(terms[a] for a in node.args), axes_of))
    leaves = leaves_of(program)
    return Abstraction(
        roots=tuple(terms[output.node] for output in program.outputs),
        leaves=leaves,
        leaf_axes={x.name: axes_of(x.dims) for x in leaves},
        axes=axes_of(program.dim_names),
        loopable=loopable,
    )


def node_term(node: Node, args: tuple[Term, ...], axes_of: AxesOf) -> Term:
    """The term of one operator; ``axes_of`` says which axes reducing a dimension sums over.

    Raises UnsupportedError for what only block graphs have.
    """
    if node.op == "const":
        return const(repr(node.attr))
    if node.op == "size":
        return size(str(node.attr))
    if node.op in TENSOR_LEAVES:
        return leaf(leaf_name(node))
    if node.op == "cast":
        return args[0]
    if node.op == "matmul":
        return reduce("sum", axes_of(node.reduced), args[0] * args[1])
    if node.op in ("sum", "max"):
        return reduce(node.op, axes_of(node.reduced), args[0])
    if operator(node.op).kind == ELEMENTWISE:
        return apply(operator(node.op).abstract_name, *args)
    raise UnsupportedError(
        f"'{node.op}' in a program",
        why="it belongs to block graphs",
        code=Code.BLOCK_OPERATOR,
        repair="programs are made of leaves, elementwise operators, sums, maxima and contractions",
    )
