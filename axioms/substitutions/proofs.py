"""Proofs of substitutions for all sizes: both sides as Programs, and a certificate of kernels.

The left side is the program, the right side one kernel without grid and loops, so proof search,
certificate and checker are those of kernels. A certificate shows that the cells are equal for all
sizes; that an expression is what its cells are is in ``cells.py``, which the field test of networks
compares with the operators themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mirage_py.axioms.certificate.checker import fault_of
from mirage_py.axioms.proof.prove import prove
from mirage_py.axioms.substitutions.cells import Lowering, sizes_of
from mirage_py.axioms.substitutions.expression import Expr
from mirage_py.errors import InputError, MirageError
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.ugraph.text.json_form import to_json


@dataclass(frozen=True, slots=True)
class Sides:
    """Left and right of a substitution as what proofs are about."""

    program: Program
    ugraph: UGraph


def sides(left: Sequence[Expr], right: Sequence[Expr]) -> Sides:
    """The cells of both sides. Raises MirageError where outputs or inputs do not fit."""
    if [x.type for x in left] != [x.type for x in right]:
        raise InputError("the two sides differ in the shapes of their outputs")
    sizes = sizes_of(*left, *right)
    asked, given = (Lowering(name, sizes) for name in ("left", "right"))
    for side, roots in ((asked, left), (given, right)):
        for name, (node, dims) in side.outputs(roots).items():
            side.builder.output(name, node, dims, F32)
    program, made = asked.builder.build(), given.builder
    live = cone(made.nodes, [o.node for o in made.outputs])
    place = {old: new for new, old in enumerate(live)}
    nodes = [
        replace(n, args=tuple(place[a] for a in n.args)) for n in map(made.nodes.__getitem__, live)
    ]
    if any(d not in program.dim_names for n in nodes for d in n.dims):
        raise InputError("the right side has a size that the left side lacks")
    outputs = [replace(o, node=place[o.node]) for o in made.outputs]
    kernel = BlockGraph.whole("right", nodes, outputs, program.dim_names)
    return Sides(program, UGraph(program, (kernel,)))


def certificate_of(left: Sequence[Expr], right: Sequence[Expr]) -> Mapping[str, Any] | None:
    """A certificate that the sides are equal for all sizes, or None where none was found."""
    try:
        both = sides(left, right)
        proof = prove(both.program, both.ugraph)
    except MirageError:
        return None
    return None if proof is None else proof.document()


def fault(left: Sequence[Expr], right: Sequence[Expr], certificate: Mapping[str, Any]) -> str:
    """Why a certificate does not show that the sides are equal; "" if it does."""
    try:
        both = sides(left, right)
    except MirageError as error:
        return str(error)
    return fault_of(to_json(both.program), to_json(both.ugraph), certificate)
