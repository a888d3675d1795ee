"""Makes exponentials safe: every exp whose scale cancels is shifted by a (running) maximum.

In search a softmax is exp(x) / sum(exp(x)). Here each such exp becomes exp(x - m). Multiplying
exp(x) by any factor exp(-m) that the later reductions do not see scales every value downstream by a
known power of that factor, its degree; if the degree of every output is 0 the factor cancels and
any m is legal, so m may be the maximum. Inside a loop over the reduced dimension m is the running
maximum, and the sums that carry a degree are rescaled when it moves (Milakov and Gimelshein 2018;
the FlashAttention recurrence falls out). The field test of the result uses a free random m: it is
verified, not assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from mirage_py.ugraph.node import Attr, Node
from mirage_py.ugraph.ugraph import BlockGraph, Section, UGraph

# A finite stand-in for minus infinity: below every float32 logit, and its differences stay finite.
LOWEST_SHIFT = -1e30

Degrees = Mapping[str, Fraction]
_SAME_DEGREE = ("neg", "cast", "abs", "relu", "sum", "max", "accum_sum", "store")
_ROOTS = {"square": Fraction(2), "sqrt": Fraction(1, 2), "rsqrt": Fraction(-1, 2)}


@dataclass(frozen=True, slots=True)
class _Group:
    """All copies of one exp (a looped value is recomputed in each loop that reads it)."""

    key: str
    nodes: tuple[int, ...]
    reduced: tuple[str, ...]


def stabilize(ugraph: UGraph) -> UGraph:
    """The µGraph with every exp whose scale cancels shifted by the maximum of its argument."""
    kernels = tuple(_stabilize_block(k) if isinstance(k, BlockGraph) else k for k in ugraph.kernels)
    return replace(ugraph, kernels=kernels)


def _stabilize_block(block: BlockGraph) -> BlockGraph:
    groups = _shiftable_groups(block)
    if not groups:
        return block
    degrees = _consistent_degrees(block, groups)
    groups = [g for g in groups if g.key in degrees[1]]
    return _Rewriter(block, groups, degrees[0]).run() if groups else block


def _shiftable_groups(block: BlockGraph) -> list[_Group]:
    """Exps with a reduction downstream, grouped by what they compute."""
    keys: list[str] = []
    for number, node in enumerate(block.nodes):
        stateful = node.op.startswith("accum")
        keys.append(
            f"#{number}"
            if stateful
            else f"{node.op}({node.attr};{','.join(keys[a] for a in node.args)})"
        )
    reduced_after = _reduced_downstream(block)
    members: dict[str, list[int]] = {}
    for number, node in enumerate(block.nodes):
        if node.op == "exp":
            members.setdefault(keys[number], []).append(number)
    groups = []
    for key, nodes in members.items():
        seen = [d for n in nodes for d in reduced_after[n]]
        reduced = tuple(d for d in block.nodes[nodes[0]].dims if d in seen)
        if reduced:
            groups.append(_Group(key, tuple(nodes), reduced))
    return groups


def _reduced_downstream(block: BlockGraph) -> list[tuple[str, ...]]:
    """For each node the dimensions that some consumer, near or far, reduces."""
    result: list[dict[str, None]] = [{} for _ in block.nodes]
    for number in range(len(block.nodes) - 1, -1, -1):
        node = block.nodes[number]
        own = node.reduced if node.op in ("sum", "max", "matmul") else ()
        for argument in node.args:
            result[argument].update(dict.fromkeys((*own, *result[number])))
    return [tuple(r) for r in result]


def _consistent_degrees(
    block: BlockGraph, groups: list[_Group]
) -> tuple[list[Degrees], tuple[str, ...]]:
    """Degrees of all nodes for the largest set of groups that cancel; drops a group on conflict."""
    active = [g.key for g in groups]
    while True:
        conflict, degrees = _degrees(block, groups, active)
        if not conflict:
            return degrees, tuple(active)
        active = [key for key in active if key not in conflict]


def _degrees(
    block: BlockGraph, groups: list[_Group], active: list[str]
) -> tuple[tuple[str, ...], list[Degrees]]:
    group_of = {n: g.key for g in groups if g.key in active for n in g.nodes}
    degrees: list[Degrees] = []
    for number, node in enumerate(block.nodes):
        args = [degrees[a] for a in node.args]
        result, conflict = _degree_of(block, node, args)
        if node.op == "store" and any(result.values()):
            conflict = tuple(result)
        if conflict:
            return conflict, []
        if number in group_of:
            result = {**result, group_of[number]: Fraction(1)}
        degrees.append({k: v for k, v in result.items() if v})
    return (), degrees


def _degree_of(
    block: BlockGraph, node: Node, args: list[Degrees]
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
        branches = [
            (a, d) for a, d in zip(node.args, args, strict=True) if not _is_zero(block.nodes[a])
        ]
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


class _Rewriter:
    """Copies a block graph section by section, inserting shifts and rescaled accumulators."""

    def __init__(self, block: BlockGraph, groups: Iterable[_Group], degrees: list[Degrees]) -> None:
        self.block = block
        self.group_of = {n: g for g in groups for n in g.nodes}
        self.degrees = degrees
        self.nodes: list[Node] = []
        self.map: dict[int, int] = {}
        # Group -> the accumulator that holds its maximum, and the loop section it runs in.
        self.maxima: dict[str, tuple[int, int]] = {}

    def run(self) -> BlockGraph:
        sections = []
        for number, section in enumerate(self.block.sections):
            first = len(self.nodes)
            for node in section.nodes:
                self._copy(node, number, section)
            sections.append(replace(section, nodes=tuple(range(first, len(self.nodes)))))
        return replace(self.block, nodes=tuple(self.nodes), sections=tuple(sections), threads=())

    def _add(self, op: str, args: tuple[int, ...], attr: Attr, dims: Iterable[str]) -> int:
        self.nodes.append(Node(op, args, attr, tuple(dims)))
        return len(self.nodes) - 1

    def _copy(self, number: int, section_number: int, section: Section) -> None:
        node = self.block.nodes[number]
        if number in self.map:  # a mask that a shift needed before its place
            return
        args = tuple(self.map[a] for a in node.args)
        group = self.group_of.get(number)
        if group is not None:
            shift = self._shift(group, number, args[0], section_number, section)
            shifted = self._add("sub", (args[0], shift), None, node.dims)
            self.map[number] = self._add("exp", (shifted,), None, node.dims)
            return
        if node.op == "accum_sum":
            moving = {
                k: d
                for k, d in self.degrees[number].items()
                if k in self.maxima and self.maxima[k][1] == section_number
            }
            if moving:
                powers = tuple(int(d) for d in moving.values())
                state = (*args, *(self.maxima[k][0] for k in moving))
                self.map[number] = self._add("accum_rescaled", state, powers, node.dims)
                return
        self.map[number] = self._add(node.op, args, node.attr, node.dims)

    def _shift(
        self, group: _Group, number: int, argument: int, section_number: int, section: Section
    ) -> int:
        if group.key in self.maxima:
            return self.maxima[group.key][0]
        dims = self.block.nodes[number].dims
        kept = tuple(d for d in dims if d not in group.reduced)
        masked = self._masked(number, argument)
        top = self._add("max", (masked,), group.reduced, kept)
        if section.loop in group.reduced:
            top = self._add("accum_max", (top,), "shift", kept)
            self.maxima[group.key] = (top, section_number)
            return top
        return self._add("shift", (top,), None, kept)

    def _masked(self, number: int, argument: int) -> int:
        """The argument of an exp, lowered where every consumer masks the exp away."""
        block = self.block
        users = [n for n in block.nodes if number in n.args]
        masks = {
            other
            for user in users
            for other in user.args
            if user.op == "mul" and block.nodes[other].op == "mask"
        }
        if len(masks) != 1 or any(u.op != "mul" for u in users):
            return argument
        (mask,) = masks
        if mask not in self.map:
            # The mask comes later in the text: a leaf, it may as well come here.
            leaf = block.nodes[mask]
            self.map[mask] = self._add(leaf.op, (), leaf.attr, leaf.dims)
        low = self._add("const", (), LOWEST_SHIFT, ())
        dims = block.nodes[number].dims
        return self._add("where", (self.map[mask], argument, low), None, dims)
