"""Which exponentials may be shifted: those whose scale cancels.

Multiplying exp(x) by a factor exp(-m) that later reductions do not see scales every value
downstream by a known power of that factor, its degree: products add degrees, quotients subtract
them, sums need equal ones. If every result has degree 0 the factor cancels, and any m is legal.

This is algebra on lists of nodes, of programs and of block graphs alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from mirage_py.ugraph.node import Node
from mirage_py.ugraph.operators import STATE, operator

# A finite stand-in for minus infinity: below every float32 logit, and its differences stay finite.
LOWEST_SHIFT = -1e30

# Group -> power in which its factor enters.
Degrees = Mapping[str, Fraction]
_SAME_DEGREE = ("neg", "cast", "abs", "relu", "sum", "max", "accum_sum", "store")
_ROOTS = {"square": Fraction(2), "sqrt": Fraction(1, 2), "rsqrt": Fraction(-1, 2)}


@dataclass(frozen=True, slots=True)
class ExpGroup:
    """All copies of one exp (a looped value is recomputed in each loop that reads it).

    ``reduced`` are those of its dimensions that something downstream reduces: a shift is constant
    along them.
    """

    key: str
    nodes: tuple[int, ...]
    reduced: tuple[str, ...]


def shiftable_exps(
    nodes: Sequence[Node], results: Iterable[int]
) -> tuple[list[ExpGroup], list[Degrees]]:
    """Groups of exps whose scale cancels in all of ``results``, and the degrees of all nodes in
    them.

    Only exps with a reduction downstream: elsewhere there is nothing to shift by.
    """
    roots = tuple(results)
    groups = _groups(nodes)
    while groups:
        conflict, degrees = _degrees(nodes, groups, roots)
        if not conflict:
            return groups, degrees
        groups = [g for g in groups if g.key not in conflict]
    return [], []


def _groups(nodes: Sequence[Node]) -> list[ExpGroup]:
    keys: list[str] = []
    for number, node in enumerate(nodes):
        stateful = operator(node.op).kind == STATE
        arguments = ",".join(keys[a] for a in node.args)
        keys.append(f"#{number}" if stateful else f"{node.op}({node.attr};{arguments})")
    reduced_after = _reduced_downstream(nodes)
    members: dict[str, list[int]] = {}
    for number, node in enumerate(nodes):
        if node.op == "exp":
            members.setdefault(keys[number], []).append(number)
    groups = []
    for key, exps in members.items():
        seen = [d for n in exps for d in reduced_after[n]]
        reduced = tuple(d for d in nodes[exps[0]].dims if d in seen)
        if reduced:
            groups.append(ExpGroup(key, tuple(exps), reduced))
    return groups


def _reduced_downstream(nodes: Sequence[Node]) -> list[tuple[str, ...]]:
    """For each node the dimensions that some consumer, near or far, reduces."""
    result: list[dict[str, None]] = [{} for _ in nodes]
    for number in range(len(nodes) - 1, -1, -1):
        node = nodes[number]
        own = node.reduced if node.op in ("sum", "max", "matmul") else ()
        for argument in node.args:
            result[argument].update(dict.fromkeys((*own, *result[number])))
    return [tuple(r) for r in result]


def _degrees(
    nodes: Sequence[Node], groups: Sequence[ExpGroup], roots: Sequence[int]
) -> tuple[tuple[str, ...], list[Degrees]]:
    """(groups that do not cancel, degrees of all nodes); the latter only if there are none."""
    group_of = {n: g.key for g in groups for n in g.nodes}
    degrees: list[Degrees] = []
    for number, node in enumerate(nodes):
        args = [degrees[a] for a in node.args]
        result, conflict = _degree_of(nodes, node, args)
        if conflict:
            return conflict, []
        if number in group_of:
            result = {**result, group_of[number]: Fraction(1)}
        degrees.append({k: v for k, v in result.items() if v})
        if number in roots and degrees[-1]:
            return tuple(degrees[-1]), []
    return (), degrees


def _degree_of(
    nodes: Sequence[Node], node: Node, args: Sequence[Degrees]
) -> tuple[Degrees, tuple[str, ...]]:
    """(degree of the result, groups that make it inhomogeneous)."""
    if not any(args):
        return {}, ()
    if node.op in ("mul", "matmul"):
        return _combine(args[0], args[1], 1), ()
    if node.op == "div":
        return _combine(args[0], args[1], -1), ()
    if node.op in _ROOTS:
        return {k: v * _ROOTS[node.op] for k, v in args[0].items()}, ()
    if node.op in _SAME_DEGREE:
        return args[0], ()
    involved = tuple(dict.fromkeys(k for a in args for k in a))
    if node.op in ("add", "sub", "maximum", "minimum", "where"):
        branches = [(a, d) for a, d in zip(node.args, args, strict=True) if not _is_zero(nodes[a])]
        if node.op == "where" and not args[0]:
            branches = [b for b in branches if b[0] != node.args[0]]
        first = branches[0][1]
        return (first, ()) if all(d == first for _, d in branches) else ({}, involved)
    return {}, involved


def _is_zero(node: Node) -> bool:
    return node.op == "const" and node.attr == 0.0


def _combine(left: Degrees, right: Degrees, sign: int) -> Degrees:
    keys = dict.fromkeys((*left, *right))
    return {k: left.get(k, Fraction(0)) + sign * right.get(k, Fraction(0)) for k in keys}
