"""Degrees of exponentials: an exponential may be shifted if its scale cancels.

Multiplying exp(x) by a factor exp(-m) that later reductions do not see scales every value
downstream by a known power of that factor, its degree: products add degrees, quotients subtract
them, sums need equal ones. If every result has degree 0 the factor cancels, and any m is legal. A
log takes the factor out, log(x exp(-k m)) = log(x) - k m: whoever shifts the exps adds k m to it.

Exponentials of different exponents that meet in an addition, sum(exp(A)) + exp(C), need one factor:
they are joined to one group, named after the first of them. So are those of a quotient whose
factors would cancel if they were one: exp(A[i]) / sum(exp(A)) is a softmax read at one place. Of a
product of two such quotients each is a group of its own: one maximum would be far above the other.

The analysis works on lists of nodes, of programs and of block graphs alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import TypeVar

from mirage_py.ugraph.ir.node import REDUCING, Node
from mirage_py.ugraph.rewrite.value_numbers import ValueNumbers

# A finite stand-in for minus infinity: below every float32 logit, and its differences stay finite.
LOWEST_SHIFT = -1e30

K = TypeVar("K")

# Group -> power in which its factor enters.
Degrees = Mapping[int, Fraction]
_SAME_DEGREE = ("neg", "cast", "abs", "relu", "sum", "max", "accum_sum", "store", "store_add")
_POWERS = {
    "square": Fraction(2),
    "sqrt": Fraction(1, 2),
    "rsqrt": Fraction(-1, 2),
    "reciprocal_no_nan": Fraction(-1),
}


@dataclass(frozen=True, slots=True)
class ExpGroup:
    """Exps that are scaled alike: for each exponent all copies of its exp; ``key`` is the value
    number of the first.

    ``reduced`` are those of their dimensions that something downstream reduces before the scale is
    gone: a shift is constant along them.
    """

    key: int
    members: tuple[tuple[int, ...], ...]
    reduced: tuple[str, ...]

    @property
    def nodes(self) -> tuple[int, ...]:
        """All exps."""
        return tuple(n for copies in self.members for n in copies)


@dataclass(frozen=True, slots=True)
class Scaling:
    """The degrees of all nodes; or, if some values have none, the groups that are at fault, and
    whether they would have them if these were one group, as factors of a quotient. ``before`` has
    the degrees of the nodes before those values.
    """

    degrees: tuple[Degrees, ...]
    conflict: tuple[int, ...] = ()
    can_join: bool = False
    is_quotient: bool = False
    before: tuple[Degrees, ...] = ()


def shiftable_exps(
    nodes: Sequence[Node], results: Iterable[int]
) -> tuple[list[ExpGroup], list[Degrees]]:
    """Groups of exps whose scale cancels in all of ``results``, and the degrees of all nodes in
    them.

    Only exps with a reduction downstream: elsewhere there is nothing to shift by.
    """
    exps, degrees, quotients = _cancelling(nodes, tuple(results))
    return _with_reductions(nodes, exps, degrees, quotients)


def cancelling_exps(nodes: Sequence[Node], results: Iterable[int]) -> tuple[int, ...]:
    """The exps whose scale cancels in all of ``results``, whether anything is reduced or not."""
    exps, _, _ = _cancelling(nodes, tuple(results))
    return tuple(exps)


def _cancelling(
    nodes: Sequence[Node], results: Sequence[int]
) -> tuple[dict[int, int], Sequence[Degrees], Collection[int]]:
    """The exps whose scale cancels, with their groups; the degrees of all nodes in these; the exps
    that are in quotients of others.
    """
    numbers = ValueNumbers().of(nodes)
    exps = {n: numbers[n] for n, node in enumerate(nodes) if node.op == "exp"}
    quotients: dict[int, None] = {}
    while True:
        found = scaling(nodes, exps)
        left = [found.degrees[r] for r in results if found.degrees[r]] if found.degrees else []
        quotient = found.conflict if found.can_join else next(filter(is_quotient, left), None)
        if quotient is not None:
            inner = inner_quotient(found.degrees or found.before, tuple(quotient))
            if inner or found.is_quotient or not found.can_join:
                divided = inner or quotient
                quotients.update((n, None) for n, key in exps.items() if key in divided)
            exps = {n: joined(key, inner or tuple(quotient)) for n, key in exps.items()}
            continue
        conflict = found.conflict or tuple(k for degrees in left for k in degrees)
        if not conflict:
            return exps, found.degrees, quotients
        exps = {n: key for n, key in exps.items() if key not in conflict}


def joined(key: int, groups: Sequence[int]) -> int:
    """The group of an exp once ``groups`` are one."""
    return groups[0] if key in groups else key


def _with_reductions(
    nodes: Sequence[Node],
    exps: Mapping[int, int],
    degrees: Sequence[Degrees],
    quotients: Collection[int],
) -> tuple[list[ExpGroup], list[Degrees]]:
    numbers = ValueNumbers().of(nodes)
    copies: dict[int, list[int]] = {}
    for n in exps:
        copies.setdefault(numbers[n], []).append(n)
    group_of = {member: exps[first] for member, (first, *_) in copies.items()}
    carried = carriers(nodes, degrees, {n: numbers[n] for n in exps}, group_of)
    groups: list[ExpGroup] = []
    for key in dict.fromkeys(group_of.values()):
        members = {m: tuple(c) for m, c in copies.items() if group_of[m] == key}
        seen = {m: reduced_dims(nodes, carried, m) for m in members}
        together = dict.fromkeys(d for dims in seen.values() for d in dims)
        dims_of = {m: nodes[first].dims for m, (first, *_) in members.items()}
        if any(d in together and d not in seen[m] for m in members for d in dims_of[m]):
            continue  # one maximum would be far above what one of the exps is added to
        dims = dict.fromkeys(d for own in dims_of.values() for d in own)
        reduced = tuple(d for d in dims if d in together)
        kept = [d for d in dims if d not in together]
        wide = any(d not in own for own in dims_of.values() for d in kept)
        if wide and any(n in quotients for copies in members.values() for n in copies):
            continue  # with one maximum for all, a sum would have the places of what it divides
        if reduced or len(members) > 1:
            groups.append(ExpGroup(key, tuple(members.values()), reduced))
    keys = [g.key for g in groups]
    return groups, [_only(d, keys) for d in degrees] if groups else []


def carriers(
    nodes: Sequence[Node],
    degrees: Sequence[Degrees],
    exps: Mapping[int, int],
    group_of: Mapping[int, int],
    loaded: Mapping[int, Collection[int]] | None = None,
) -> list[tuple[int, ...]]:
    """For each node the members of groups whose exps are in it, as long as it has a degree.

    ``exps`` gives the member of each exp, ``loaded`` those in loads of intermediates.
    """
    found: list[tuple[int, ...]] = []
    for number, node in enumerate(nodes):
        members = dict.fromkeys(m for a in node.args for m in found[a])
        if number in exps:
            members[exps[number]] = None
        elif loaded and number in loaded:
            members = dict.fromkeys(loaded[number])
        found.append(tuple(m for m in members if group_of[m] in degrees[number]))
    return found


def reduced_dims(
    nodes: Sequence[Node], carried: Sequence[Collection[int]], key: int
) -> tuple[str, ...]:
    """The dimensions that are reduced where a value carries the factor ``key``."""
    found: dict[str, None] = {}
    for node, keys in zip(nodes, carried, strict=True):
        if node.op in REDUCING and key in keys:
            found.update(dict.fromkeys(node.reduced))
    return tuple(found)


def scaling(
    nodes: Sequence[Node], exps: Mapping[int, int], loaded: Mapping[int, Degrees] | None = None
) -> Scaling:
    """The degrees of all nodes, if the exps of each group are scaled.

    ``exps`` gives the group of each exp, ``loaded`` the degrees of loads of intermediates.
    """
    degrees: list[Degrees] = []
    for number, node in enumerate(nodes):
        args = [degrees[a] for a in node.args]
        result, conflict = degree_of(nodes, node, args)
        if conflict:
            can_join = _can_join(nodes, node, args, conflict)
            return Scaling((), conflict, *can_join, before=tuple(degrees))
        if number in exps:
            result = {**result, exps[number]: Fraction(1)}
        elif loaded and number in loaded:
            result = loaded[number]
        degrees.append({k: v for k, v in result.items() if v})
    return Scaling(tuple(degrees))


def is_quotient(degrees: Mapping[K, Fraction]) -> bool:
    """Whether factors of several groups would cancel if these were one group."""
    return len(degrees) > 1 and sum(degrees.values(), Fraction(0)) == 0


def inner_quotient(degrees: Sequence[Mapping[K, Fraction]], groups: Collection[K]) -> tuple[K, ...]:
    """Of groups that would cancel as one those of the first value in which fewer do; or none."""
    found = (d for d in degrees if is_quotient(d) and len(d) < len(groups))
    return next((tuple(d) for d in found if all(k in groups for k in d)), ())


def _can_join(
    nodes: Sequence[Node], node: Node, args: Sequence[Degrees], groups: Sequence[int]
) -> tuple[bool, bool]:
    """Whether the operands have one degree if these groups are one; and whether it is 0."""
    if len(groups) < 2:
        return False, False
    pairs = [(a, v) for a, v in zip(node.args, args, strict=True) if not _is_zero(nodes[a])]
    totals = [sum((v.get(k, Fraction(0)) for k in groups), Fraction(0)) for _, v in pairs]
    if not any(totals):
        return True, True
    if node.op == "where":
        totals = totals[1:]
    return node.op in ("add", "where") and all(total == totals[0] for total in totals), False


def _only(degrees: Degrees, keys: Collection[int]) -> Degrees:
    return {k: v for k, v in degrees.items() if k in keys}


def degree_of(
    nodes: Sequence[Node], node: Node, args: Sequence[Mapping[K, Fraction]]
) -> tuple[Mapping[K, Fraction], tuple[K, ...]]:
    """(degree of the node over operands of degrees ``args``, groups that make it inhomogeneous).

    Groups may have any names here.
    """
    if not any(args):
        return {}, ()
    if node.op in ("mul", "matmul"):
        return _combined(args[0], args[1], 1), ()
    if node.op == "div":
        return _combined(args[0], args[1], -1), ()
    if node.op in _POWERS:
        return _times(args[0], _POWERS[node.op]), ()
    if node.op == "pow":
        exponent = nodes[node.args[1]].attr
        if isinstance(exponent, float) and isfinite(exponent):
            return _times(args[0], Fraction(repr(exponent))), ()
    if node.op in _SAME_DEGREE:
        return args[0], ()
    if node.op == "log":
        return {}, ()
    if node.op in ("add", "sub", "maximum", "minimum", "where"):
        branches = list(zip(node.args, args, strict=True))
        if node.op == "where":
            if args[0]:
                return {}, tuple(args[0])
            branches = branches[1:]
        values = [degrees for a, degrees in branches if not _is_zero(nodes[a])]
        return values[0], _unequal(values)
    return {}, tuple(dict.fromkeys(k for a in args for k in a))


def _unequal(values: Sequence[Mapping[K, Fraction]]) -> tuple[K, ...]:
    """The groups in which the values have not all the same degree."""
    keys = dict.fromkeys(k for v in values for k in v)
    return tuple(k for k in keys if any(v.get(k) != values[0].get(k) for v in values))


def _is_zero(node: Node) -> bool:
    return node.op == "const" and node.attr == 0.0


def _times(degrees: Mapping[K, Fraction], factor: Fraction) -> Mapping[K, Fraction]:
    return {k: v * factor for k, v in degrees.items()}


def _combined(
    left: Mapping[K, Fraction], right: Mapping[K, Fraction], sign: int
) -> Mapping[K, Fraction]:
    keys = dict.fromkeys((*left, *right))
    return {k: left.get(k, Fraction(0)) + sign * right.get(k, Fraction(0)) for k in keys}
