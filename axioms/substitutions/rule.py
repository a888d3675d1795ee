"""A rule: two small graphs that are equal for all sizes, and their text.

    rule 17 proved
      x[m, n], a[n, k], b[n, p]
      u0 = matmul(x, a)
      u1 = matmul(x, b)
      give u0, u1
    becomes
      v0 = concat(a, b; axis 1)  # once, where a, b are constants
      v1 = matmul(x, v0)
      v2, v3 = split(v1; axis 1, sizes k p)
      give v2, v3

Types are conditions: sizes of one name are equal. A window that is ``any`` has any stride, padding
and dilation, the same on both sides; ``same`` pads by half of an odd kernel; ``unit`` is ``same``
with stride 1. A pointwise rule has one axis, which stands for all; in a rule about one joined axis
``[a, p, b]`` stand a and b for any number of axes before and behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from mirage_py.axioms.substitutions.expression import (
    Expr,
    Type,
    inputs,
    nodes,
    operators,
    type_text,
)

POINTWISE = ("input", "add", "mul", "relu")
_WEIGHTS = {"matmul": 1, "conv": 1}
PROVED, TESTED = "proved", "tested"


@dataclass(frozen=True)
class Rule:
    """Outputs of two graphs, in order; ``status`` says whether a certificate is there."""

    name: str
    left: tuple[Expr, ...]
    right: tuple[Expr, ...]
    status: str

    @property
    def size(self) -> tuple[int, int]:
        """How many operators each side has."""
        return operators(*self.left), operators(*self.right)

    @property
    def is_both_ways(self) -> bool:
        """Whether both sides are about the same inputs and none is an input alone."""
        ways = (self.applies(forward=True), self.applies(forward=False))
        return all(ways)

    def applies(self, *, forward: bool) -> bool:
        """Whether a match of one side says all that the other side needs."""
        here, there = (self.left, self.right) if forward else (self.right, self.left)
        sizes = {s for x in nodes(*here) for axis in x.type for s in axis}
        needed = {s for x in nodes(*there) for axis in x.type for s in axis}
        known = {*inputs(*there)} <= {*inputs(*here)}
        return known and needed <= sizes and all(x.op != "input" for x in here)

    @cached_property
    def weights(self) -> tuple[str, ...]:
        """Inputs that are only kernels of convolutions and right operands of products, or what
        these are made of: constants in most networks.
        """
        data = {x for root in (*self.left, *self.right) for x in _data(root)}
        return tuple(x.name for x in inputs(*self.left, *self.right) if x not in data)

    def once(self, side: Sequence[Expr]) -> tuple[Expr, ...]:
        """What one side computes from constants alone, if its weights are constants."""
        found = []
        for x in nodes(*side):
            names = [i.name for i in inputs(x)]
            if x.op != "input" and all(n in self.weights for n in names):
                found.append(x)
        return tuple(found)

    def __str__(self) -> str:
        return rule_text(self)


def _data(root: Expr) -> list[Expr]:
    """Inputs on the way of data: not behind the right operand of a product or convolution."""
    seen: dict[Expr, None] = {}
    stack = [root]
    while stack:
        x = stack.pop()
        if x not in seen:
            seen[x] = None
            stack += [a for n, a in enumerate(x.args) if _WEIGHTS.get(x.op) != n]
    return [x for x in seen if x.op == "input"]


def is_pointwise(*roots: Expr) -> bool:
    """Whether each element of the results is made of the elements at its place."""
    return all(x.op in POINTWISE for x in nodes(*roots))


def joined_axis(*roots: Expr) -> int | None:
    """The one axis that pointwise graphs join and take apart, or None."""
    found = {x.attrs[0] for x in nodes(*roots) if x.op in ("concat", "split")}
    plain = all(x.op in (*POINTWISE, "concat", "split") for x in nodes(*roots))
    return int(str(found.pop())) if plain and len(found) == 1 else None


# -- text --------------------------------------------------------------------------------------


def rule_text(rule: Rule) -> str:
    """A rule as two small graphs."""
    given = ", ".join(f"{x.name}{type_text(x.type)}" for x in inputs(*rule.left, *rule.right))
    lines = [f"rule {rule.name} {rule.status}", f"  {given}"]
    lines += _graph(rule, rule.left, "u")
    lines += ["becomes", *_graph(rule, rule.right, "v")]
    return "\n".join(lines)


def _graph(rule: Rule, side: Sequence[Expr], stem: str) -> list[str]:
    names: dict[Expr, str] = {x: x.name for x in inputs(*side)}
    once, lines, given = rule.once(side), [], len(names)
    for x in nodes(*side):
        if x in names:  # an input, or the other result of a split
            continue
        made = [x]
        if x.op == "split":
            made = [Expr("split", (x.attrs[0], n, x.attrs[2]), x.args) for n in (0, 1)]
        for m in made:
            names[m] = f"{stem}{len(names) - given}"
        note = ""
        if x in once:
            of = ", ".join(i.name for i in inputs(x))
            note = f"  # once, where {of} {'is a constant' if ',' not in of else 'are constants'}"
        of_text = ", ".join(names[a] for a in x.args)
        lines.append(f"  {', '.join(names[m] for m in made)} = {x.op}({of_text}{_attrs(x)}){note}")
    lines.append(f"  give {', '.join(names[x] for x in side)}")
    return lines


def _attrs(x: Expr) -> str:
    match x.op:
        case "concat":
            return f"; axis {x.attrs[0]}"
        case "split":
            sizes = x.attrs[2]
            assert isinstance(sizes, tuple)
            return f"; axis {x.attrs[0]}, sizes {' '.join('+'.join(part) for part in sizes)}"
        case "conv":
            return f"; window {x.attrs[0]}, groups {x.attrs[1]}"
        case "enlarge":
            return f"; margin {x.attrs[0]}"
        case "max_pool" | "avg_pool":
            return f"; window {x.attrs[0]}, kernel {x.attrs[1]}"
    return ""


def with_axis(root: Expr, types: Mapping[str, Type], axis: int) -> Expr:
    """The same with other types of inputs and another axis."""
    done: dict[Expr, Expr] = {}
    for x in nodes(root):
        attrs = x.attrs
        if x.op == "input":
            attrs = (x.name, types[x.name])
        elif x.op in ("concat", "split"):
            attrs = (axis, *x.attrs[1:])
        done[x] = Expr(x.op, attrs, tuple(done[a] for a in x.args))
    return done[root]


def at_rank(rule: Rule, rank: int) -> tuple[Rule, ...]:
    """A pointwise rule, or one about one joined axis, for tensors of so many axes; others as they
    are.
    """
    sides = (*rule.left, *rule.right)
    given, half = inputs(*sides), len(rule.left)
    if is_pointwise(*sides):
        whole: Type = tuple((f"m{n}",) for n in range(rank))
        types: dict[str, Type] = {x.name: whole if x.type else () for x in given}
        new = [with_axis(x, types, 0) for x in sides]
        return (Rule(rule.name, tuple(new[:half]), tuple(new[half:]), rule.status),)
    if joined_axis(*sides) is None:
        return (rule,)
    found = []
    for axis in range(rank):
        before: Type = tuple((f"a{n}",) for n in range(axis))
        behind: Type = tuple((f"b{n}",) for n in range(rank - axis - 1))
        types = {x.name: (*before, x.type[1], *behind) if x.type else () for x in given}
        new = [with_axis(x, types, axis) for x in sides]
        found.append(Rule(rule.name, tuple(new[:half]), tuple(new[half:]), rule.status))
    return tuple(found)
