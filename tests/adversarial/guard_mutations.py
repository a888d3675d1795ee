"""Mutations of guards, ties, single positions and trees of sums.

Importing this registers them with ``mutations``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from adversarial.mutations import mutation
from adversarial.surgery import bypassed, changed, inserted, of, replaced_by

from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import STORES, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph

_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
# The other answer where both sides are equal, and no other difference.
_OTHER_TIE = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt"}


@mutation
def drops_a_guard(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """What a condition chooses, whether it holds or not."""
    for n, node in of(block, "where"):
        yield bypassed(block, n, node.args[1])
    for n, node in of(block, "mul"):
        for guard, kept in (node.args, node.args[::-1]):
            if block.nodes[guard].op in (*_COMPARISONS, "mask"):
                yield bypassed(block, n, kept)


@mutation
def guards_the_numerator_only(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """where(c, x, 0) / y for where(c, x / y, 0)."""
    for n, (guard, quotient, _) in _guarded_quotients(block):
        over, under = block.nodes[quotient].args
        inner = Node("where", (guard, over, block.nodes[n].args[2]))
        wider = inserted(block, n, [inner])
        yield changed(wider, n + 1, op="div", args=(n, under), attr=None)


@mutation
def guards_the_divisor_only(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """x / where(c, y, 1) for where(c, x / y, z)."""
    for n, (guard, quotient, _) in _guarded_quotients(block):
        over, under = block.nodes[quotient].args
        new = [Node("const", (), 1.0), Node("where", (guard, under, n))]
        wider = inserted(block, n, new)
        yield changed(wider, n + 2, op="div", args=(over, n + 1), attr=None)


@mutation
def divides_a_guard(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """(c / y) * x for where(c, x / y, 0): 0 / 0 where the guard does not hold."""
    for n, (guard, quotient, _) in _guarded_quotients(block):
        over, under = block.nodes[quotient].args
        new = [
            Node("const", (), 1.0),
            Node("const", (), 0.0),
            Node("where", (guard, n, n + 1)),
            Node("div", (n + 2, under)),
        ]
        wider = inserted(block, n, new)
        yield changed(wider, n + 4, op="mul", args=(n + 3, over), attr=None)


@mutation
def moves_the_border_of_a_guard(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """x > -1, or x > 1, for x > 0."""
    for n, node in of(block, *_COMPARISONS):
        for step in (1.0, -1.0):
            wider = inserted(block, n, [Node("const", (), step), Node("add", (node.args[1], n))])
            yield changed(wider, n + 2, args=(node.args[0], n + 1))


@mutation
def answers_ties_otherwise(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """< for <=, > for >=, and the other way round, of values."""
    for n, node in of(block, *_OTHER_TIE):
        yield changed(block, n, op=_OTHER_TIE[node.op])


@mutation
def takes_equality_for_an_order(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """== for <=, != for <, of values."""
    for n, node in of(block, *_COMPARISONS):
        yield changed(block, n, op="eq" if node.op in ("le", "ge") else "ne")


@mutation
def moves_a_border_far(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """The border of a mask three places and more beside."""
    for n, node in of(block, "mask"):
        if isinstance(node.attr, Predicate) and node.attr.exprs:
            left, right = node.attr.exprs
            for step in (3, -3, 5, -7):
                yield changed(block, n, attr=Predicate(node.attr.op, (left, right + step)))


@mutation
def masks_one_place_less(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """A mask that does not hold at one place where it did, or holds at one more."""
    for n, node in of(block, "mask"):
        if not isinstance(node.attr, Predicate):
            continue
        for d in node.attr.dims():
            for place in _places(program, d):
                here = Predicate("eq", (ix.dim(d), ix.const(place)))
                for attr in (
                    Predicate("and", (), (node.attr, Predicate("not", (), (here,)))),
                    Predicate("or", (), (node.attr, here)),
                ):
                    yield changed(block, n, attr=attr)


@mutation
def scales_one_place(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """Three times what is read or stored at one place of one dimension."""
    for n, node in of(block, "load"):
        for d in node.dims:
            for place in _places(program, d):
                yield _scaled_at(block, n, n + 1, (d, place))
    for n, node in of(block, *STORES):
        for d in block.nodes[node.args[0]].dims:
            for place in _places(program, d):
                yield _scaled_at(block, node.args[0], n, (d, place))


@mutation
def reads_elsewhere_at_one_place(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """One element of a load comes from the place before it."""
    for n, node in of(block, "load"):
        for axis, expr in enumerate(node.access.index):
            if not expr.is_dim or program.sizes[expr.name] < 3:
                continue
            yield changed(block, n, attr=_jumping(node, axis, expr, program))


@mutation
def changes_a_tree_of_sums(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """a - (b - c) for (a - b) - c, a + (b + b) for (a + b) + c, a / (b / c) for (a / b) / c."""
    for n, node in of(block, "add", "sub", "div"):
        left, right = node.args
        if block.nodes[left].op != node.op:
            continue
        a, b = block.nodes[left].args
        inner = (b, b) if node.op == "add" else (b, right)
        wider = inserted(block, n, [Node(node.op, inner)])
        yield changed(wider, n + 1, args=(a, n))


@mutation
def shifts_a_logarithm_wrongly(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """log(s) - m, or log(s), or m log(s), for m + log(s)."""
    for n, node in of(block, "add"):
        for shift, log in (node.args, node.args[::-1]):
            if block.nodes[log].op == "log":
                yield changed(block, n, op="sub", args=(log, shift))
                yield changed(block, n, op="mul", args=(log, shift))
                yield bypassed(block, n, log)


@mutation
def loses_the_shift_of_an_exponent(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """exp(x), or exp(x) - m, for exp(x - m)."""
    for n, node in of(block, "exp"):
        inner = block.nodes[node.args[0]]
        if inner.op == "sub":
            x, shift = inner.args
            yield changed(block, n, args=(x,))
            whole = changed(block, n, args=(x,))
            yield replaced_by(whole, n, lambda at, m=shift: Node("sub", (at, m)))


def _guarded_quotients(block: BlockGraph) -> Iterator[tuple[int, tuple[int, int, int]]]:
    for n, node in of(block, "where"):
        guard, chosen, other = node.args
        if block.nodes[chosen].op == "div":
            yield n, (guard, chosen, other)


def _places(program: Program, dim: str) -> tuple[int, ...]:
    """One place in the middle, the first and the last."""
    size = program.sizes[dim]
    return tuple(dict.fromkeys((size // 2, 0, size - 1)))


def _scaled_at(block: BlockGraph, value: int, before: int, where: tuple[str, int]) -> BlockGraph:
    """Three times a value at one place, for all that read it from node ``before`` on."""
    dim, place = where
    here = Predicate("eq", (ix.dim(dim), ix.const(place)))
    new = [
        Node("mask", (), here),
        Node("const", (), 3.0),
        Node("const", (), 1.0),
        Node("where", (before, before + 1, before + 2)),
        Node("mul", (value, before + 3)),
    ]
    last = before + len(new) - 1
    wider = inserted(block, before, new)
    for user, node in enumerate(wider.nodes):
        if value in node.args and user > last:
            args = tuple(last if a == value else a for a in node.args)
            wider = changed(wider, user, args=args)
    return wider


def _jumping(node: Node, axis: int, expr: IndexExpr, program: Program) -> object:
    """The access with an index that is x everywhere but at the middle, where it is x - 1."""
    size = program.sizes[expr.name]
    place = size // 2
    # (x + size - p) // size is 0 below p and 1 from p on.
    from_here = (expr + (size - place)) // size
    from_the_next = (expr + (size - place - 1)) // size
    index = list(node.access.index)
    index[axis] = expr - from_here + from_the_next
    return replace(node.access, index=tuple(index))
