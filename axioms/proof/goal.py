"""The goal of a proof: for each output a term of the program and a term of the µGraph.

Both are read anew, from the program as the user gave it and from the kernels as they are. A
dimension that some loop of the µGraph goes over has two axes, "d.l" for the iterations and "d.t"
for what one of them sees, unless both are always reduced together; any other has one axis, of its
own name. Where the µGraph has split a dimension in two, the program is read with it split: an index
d as ``d_part * size + d``, a reduction over d as one over both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite

from mirage_py.axioms.terms.term import REDUCTIONS, Term, apply, const, leaf, reduce, size, subterms
from mirage_py.errors import UnsupportedError
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import DType
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import REDUCING, Access, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.ugraph.operators import ELEMENTWISE, operator

_OUTER = "_part"


@dataclass(frozen=True, slots=True)
class Claim:
    """That the program's term for an output equals the µGraph's."""

    output: str
    program: Term
    ugraph: Term


@dataclass(frozen=True)
class Goal:
    """All outputs; ``leaf_axes`` says what a leaf may depend on, ``axes`` are all there are, and
    ``calls`` how the operands of each library call are read.
    """

    claims: tuple[Claim, ...]
    axes: tuple[str, ...]
    leaf_axes: Mapping[str, tuple[str, ...]]
    calls: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def cut(self) -> tuple[str, ...]:
        """The dimensions with two axes."""
        return tuple(axis[:-2] for axis in self.axes if axis.endswith(".l"))

    @cached_property
    def facts(self) -> tuple[tuple[Term, Term], ...]:
        """The size of a dimension that is looped over is the sum of those of its tiles."""
        return tuple(
            (t, Term("sum", f"{t.attr}.l", (size(f"{t.attr}.t"),)))
            for t in _terms(self)
            if t.op == "size" and f"{t.attr}.t" in self.axes
        )


def range_of(axis: str) -> str:
    """The axis on which the length of another depends, or "": the last tile may be shorter."""
    d, tile, loop = axis.partition(".t")
    return f"{d}.l{loop}" if tile else ""


def is_bound_by(axes: Iterable[str]) -> bool:
    """Whether one of these axes says how long another is: sums over the two do not commute."""
    known = tuple(axes)
    return any(range_of(axis) in known for axis in known)


def with_whole_axes(goal: Goal, dims: Sequence[str]) -> Goal:
    """The same with "d" for "d.l" and "d.t" of those ``dims`` that are always reduced in one go.

    op[d.l](op[d.t](x)) is op[d](x), however long the last tile is.
    """
    for d in dims:
        if _is_always_whole(goal, d):
            goal = _with_whole_axis(goal, d)
    return goal


def _terms(goal: Goal) -> Iterator[Term]:
    return subterms(*(t for c in goal.claims for t in (c.program, c.ugraph)))


def _reduces(term: Term, axis: str) -> bool:
    return term.op in REDUCTIONS and term.attr == axis


def _is_always_whole(goal: Goal, d: str) -> bool:
    """Whether each reduction over the iterations is one of a tile's by the same operator, and each
    of a tile's is only used there.
    """
    ends = [t for c in goal.claims for t in (c.program, c.ugraph)]
    if any(_reduces(t, f"{d}.t") for t in ends):
        return False
    for t in _terms(goal):
        for argument in t.args:
            if _reduces(t, f"{d}.l") and (argument.op, argument.attr) != (t.op, f"{d}.t"):
                return False
            if _reduces(argument, f"{d}.t") and (t.op, t.attr) != (argument.op, f"{d}.l"):
                return False
    return True


def _with_whole_axis(goal: Goal, d: str) -> Goal:
    new: dict[Term, Term] = {}
    for t in _terms(goal):
        args = tuple(new[a] for a in t.args)
        if _reduces(t, f"{d}.t"):
            new[t] = Term(t.op, d, args)
        else:
            new[t] = args[0] if _reduces(t, f"{d}.l") else Term(t.op, t.attr, args)
    claims = tuple(Claim(c.output, new[c.program], new[c.ugraph]) for c in goal.claims)
    leaf_axes = {name: _whole(axes, d) for name, axes in goal.leaf_axes.items()}
    return replace(goal, claims=claims, axes=_whole(goal.axes, d), leaf_axes=leaf_axes)


def _whole(axes: tuple[str, ...], d: str) -> tuple[str, ...]:
    return tuple(d if a == f"{d}.l" else a for a in axes if a != f"{d}.t")


class Axes:
    """The axes of the dimensions of a µGraph, and the leaves read over them."""

    def __init__(self, ugraph: UGraph) -> None:
        blocks = [k for k in ugraph.kernels if isinstance(k, BlockGraph)]
        loops = dict.fromkeys(s.loop for b in blocks for s in b.sections if s.loop is not None)
        self.sizes = ugraph.program.sizes
        self.looped = tuple(loops)
        self.leaves: dict[str, tuple[str, ...]] = {}

    def of(self, dims: Sequence[str], loop: str | None = None) -> tuple[str, ...]:
        """Those of some dimensions; in the body of a ``loop`` a tile of its dimension."""
        found: list[str] = []
        for d in dims:
            if d not in self.looped:
                found.append(d)
            else:
                found += [f"{d}.t"] if d == loop else [f"{d}.l", f"{d}.t"]
        return tuple(found)

    def all(self) -> tuple[str, ...]:
        """Every axis, in the order of the dimensions."""
        return self.of(tuple(self.sizes))

    def leaf(self, op: str, attr: Access | IndexExpr | Predicate) -> Term:
        """The term of a load, of an index or of a mask: two of equal text are one value."""
        name = str(attr) if op == "load" else f"{op} {attr}"
        self.leaves[name] = self.of(attr.dims())
        return leaf(name)


def scalar(node: Node) -> Term | None:
    """The term of a constant or a size. Infinities are no real numbers: inf - inf is not 0."""
    if node.op == "const":
        if not isfinite(float(str(node.attr))):
            raise UnsupportedError(f"the constant {node.attr}, which is no real number,")
        return const(repr(node.attr))
    return size(str(node.attr)) if node.op == "size" else None


def same_value(node: Node) -> bool:
    """Whether a cast only rounds; one to whole numbers or truth values is another function."""
    return isinstance(node.attr, DType) and node.attr.is_float


def dims_made_of(program: Program, ugraph: UGraph) -> dict[str, tuple[str, ...]]:
    """What the µGraph has in place of a program's dimensions, where it is something else: its parts
    and what one of them has, or another dimension of equal size.

    Raises UnsupportedError where its dimensions are not the program's, split or whole.
    """
    own, left = ugraph.program.sizes, dict(ugraph.program.sizes)
    found: dict[str, tuple[str, ...]] = {}
    for d, extent in program.sizes.items():
        inner = own.get(d, 0)
        new = [o for o in (d + _OUTER, *own) if own.get(o, 0) * inner == extent]
        outer = next((o for o in new if o not in program.sizes), None)
        alike = [o for o in own if own[o] == extent and not _meet(program, d, o)]
        if inner == extent:
            made: tuple[str, ...] = (d,)
        elif outer is not None:
            found[d] = made = (outer, d)
        elif not inner and alike:
            found[d] = made = (alike[0],)
        else:
            raise UnsupportedError(f"dimension '{d}' of {program.name} is another in the µGraph")
        for o in made:
            left.pop(o, None)
    if left:
        raise UnsupportedError(f"dimension '{next(iter(left))}' is not the program's")
    return found


def _meet(program: Program, d: str, other: str) -> bool:
    """Whether a value depends on both, or reduces them."""
    operands = (
        (*(x for a in n.args for x in program.nodes[a].dims), *n.dims) for n in program.nodes
    )
    return any(d in dims and other in dims for dims in operands)


def sum_of_parts(dims: Sequence[str], sizes: Mapping[str, int]) -> IndexExpr:
    """outer * size + inner, or the one dimension."""
    last = ix.dim(dims[-1])
    return last if len(dims) == 1 else ix.dim(dims[0]) * sizes[dims[1]] + last


class ProgramTerms:
    """The terms of a program's nodes, over the axes of a µGraph."""

    def __init__(
        self, program: Program, axes: Axes, made_of: Mapping[str, tuple[str, ...]]
    ) -> None:
        self._program = program
        self._axes = axes
        self._made_of = made_of
        self._exprs = {d: sum_of_parts(new, axes.sizes) for d, new in made_of.items()}
        self._terms: list[Term] = []
        for node in program.nodes:
            self._terms.append(self._term(node, [self._terms[a] for a in node.args]))

    def output(self, number: int) -> Term:
        """The term of an output."""
        return self._terms[self._program.outputs[number].node]

    def index(self, number: int) -> tuple[IndexExpr, ...]:
        """Where an output goes."""
        return tuple(e.substitute(self._exprs) for e in self._program.outputs[number].index)

    def _term(self, node: Node, args: Sequence[Term]) -> Term:
        attr = node.attr
        if node.op == "size" and attr in self._made_of:
            sizes = [size(d) for d in self._made_of[str(attr)]]
            return sizes[0] if len(sizes) == 1 else sizes[0] * sizes[1]
        known = scalar(node)
        if known is not None:
            return known
        if isinstance(attr, Access):
            index = tuple(e.substitute(self._exprs) for e in attr.index)
            return self._axes.leaf(node.op, Access(attr.tensor, index))
        if isinstance(attr, IndexExpr | Predicate):
            return self._axes.leaf(node.op, attr.substitute(self._exprs))
        if node.op == "cast" and same_value(node):
            return args[0]
        if node.op in REDUCING:
            over = self._axes.of([o for d in node.reduced for o in self._made_of.get(d, (d,))])
            of = args[0] * args[1] if node.op == "matmul" else args[0]
            return reduce("max" if node.op == "max" else "sum", over, of)
        if operator(node.op).kind == ELEMENTWISE and node.op != "cast":
            return apply(operator(node.op).abstract_name, *args)
        raise UnsupportedError(f"'{node.op}' to {attr} in a program")
