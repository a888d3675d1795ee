"""The second tier of verification: do the axioms join a family with the program it came from?

A block graph has a term as a program has: a reduction inside a loop over d takes the tile's part of
d, the accumulator after it the loop's part. If the laws put both terms in one class, the two are
equal for all values and all sizes. A family is compared before it is stabilised; that a shift
cancels is what the field test shows.
"""

from __future__ import annotations

from mirage_py.axioms.proof import joins
from mirage_py.axioms.term import Term, reduce
from mirage_py.errors import MirageError
from mirage_py.search.abstraction import Abstraction, abstract, loop_axis, node_term, tile_axis
from mirage_py.ugraph.program import Program
from mirage_py.ugraph.ugraph import BlockGraph, UGraph


def proves(program: Program, family: UGraph) -> bool:
    """True if every output of a one-kernel family is joined with the program's by the laws.

    False says only that no proof was found.
    """
    if len(family.kernels) != 1 or not isinstance(family.kernels[0], BlockGraph):
        return False
    try:
        goal = abstract(program)
        stored = _stored_terms(family.kernels[0], goal)
        return all(
            joins(root, stored[output.tensor.name], goal.leaf_axes, axes=goal.axes)
            for root, output in zip(goal.roots, program.outputs, strict=True)
        )
    except MirageError:
        return False


def _stored_terms(block: BlockGraph, goal: Abstraction) -> dict[str, Term]:
    """What each store writes, as a term."""
    terms: list[Term] = []
    stored: dict[str, Term] = {}
    for number, node in enumerate(block.nodes):
        loop = block.sections[block.section_of[number]].loop

        def axes_of(dims: tuple[str, ...], loop: str | None = loop) -> tuple[str, ...]:
            axes = [
                axis
                for d in dims
                for axis in ((tile_axis(d),) if d == loop else (loop_axis(d), tile_axis(d)))
            ]
            return tuple(a for a in axes if a in goal.axes)

        args = tuple(terms[a] for a in node.args)
        if node.op == "store":
            stored[node.access.tensor] = args[0]
            terms.append(args[0])
        elif node.op in ("accum_sum", "accum_max") and loop is not None and node.attr is None:
            op = "sum" if node.op == "accum_sum" else "max"
            terms.append(reduce(op, (loop_axis(loop),), args[0]))
        else:
            terms.append(node_term(node, args, axes_of))
    return stored
