"""Shapes of expressions that have none yet: the most general ones that all operators allow.

Axes are unknowns, joins of two, or the positions of a window; what an operator demands makes two
of them one. A join meets a join part by part, so a split knows where its operand was joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from mirage_py.axioms.substitutions.expression import (
    SAME,
    UNIT,
    Axis,
    Expr,
    Type,
    axis_text,
    nodes,
)
from mirage_py.errors import InputError

# An axis: an unknown by its number, a join ("+", left, right), or positions ("window", ...).
Tree = Any
_NAMES = ("m", "n", "k", "p", "q", "s", "t", "u", "v", "w")


class _Mismatch(Exception):  # noqa: N818 - not an error: another number of groups is tried
    pass


def typed(outputs: Sequence[Expr], rank: int = 2) -> tuple[Expr, ...]:
    """The same expressions with the most general types of their inputs and sizes of splits.

    The first half of the outputs are those of the left side, the second half are their equals.
    ``groups`` of a convolution may be 0: one group is tried first, then two. ``rank`` is how many
    axes have inputs of which no operator says it. Raises InputError where no shapes fit.
    """
    convs = [x for x in nodes(*outputs) if x.op == "conv"]
    known = [(int(str(x.attr("groups"))),) if x.attr("groups") else (1, 2) for x in convs]
    for chosen in product(*known):
        try:
            return _Shapes(outputs, dict(zip(convs, chosen, strict=True)), rank).typed(outputs)
        except _Mismatch:
            continue
    raise InputError("no shapes of the inputs fit these operators")


class _Shapes:
    def __init__(self, outputs: Sequence[Expr], groups: dict[Expr, int], rank: int) -> None:
        self._groups, self._rank = groups, rank
        self._bound: dict[int, Tree] = {}
        self._count = 0
        # By rank, which is known for an expression once one operator says it.
        self._ranks: dict[Expr, int] = {}
        self._types: dict[Expr, list[Tree]] = {}
        self._order = list(nodes(*outputs))
        self._find_ranks(outputs)
        self._sizes: dict[Expr, Tree] = {}
        self._kernels: dict[str, Tree] = {}
        for x in self._order:
            self._types[x] = self._rule(x, [self._types[a] for a in x.args])

    # -- ranks ------------------------------------------------------------------------------------

    def _find_ranks(self, outputs: Sequence[Expr]) -> None:
        alike: list[tuple[Expr, Expr]] = []
        scaled: list[Expr] = []
        for x in self._order:
            if (x.op == "input" and x.attr("type") == ()) or (x.args and {*x.args} <= {*scaled}):
                scaled.append(x)
        for x in self._order:
            if x.op in ("matmul", "transpose"):
                self._ranks |= dict.fromkeys((x, *x.args), 2)
            elif x.op in ("conv", "enlarge", "max_pool", "avg_pool"):
                self._ranks |= dict.fromkeys((x, *x.args), 3)
            else:
                alike += [(x, a) for a in x.args if a not in scaled]
        half = len(outputs) // 2
        alike += list(zip(outputs[:half], outputs[half:], strict=False))
        self._ranks |= dict.fromkeys(scaled, 0)
        changed = True
        while changed:
            changed = False
            for pair in alike:
                known = [self._ranks[x] for x in pair if x in self._ranks]
                for x in pair:
                    if known and x not in self._ranks:
                        self._ranks[x], changed = known[0], True

    # -- axes -------------------------------------------------------------------------------------

    def _new(self) -> int:
        self._count += 1
        return self._count

    def _find(self, tree: Tree) -> Tree:
        while isinstance(tree, int) and tree in self._bound:
            tree = self._bound[tree]
        return tree

    def _meet(self, one: Tree, other: Tree) -> None:
        one, other = self._find(one), self._find(other)
        if one == other:
            return
        if isinstance(one, int) or isinstance(other, int):
            unknown, known = (one, other) if isinstance(one, int) else (other, one)
            if self._holds(known, unknown):
                raise _Mismatch
            self._bound[unknown] = known
            return
        if one[0] != other[0] or (one[0] == "window" and one[1] != other[1]):
            raise _Mismatch
        start = 1 if one[0] == "+" else 2
        for a, b in zip(one[start:], other[start:], strict=True):
            self._meet(a, b)

    def _flat(self, tree: Tree) -> tuple[Tree, ...]:
        tree = self._find(tree)
        if isinstance(tree, int) or tree[0] != "+":
            return (tree,)
        return self._flat(tree[1]) + self._flat(tree[2])

    def _holds(self, tree: Tree, unknown: int) -> bool:
        tree = self._find(tree)
        if isinstance(tree, tuple):
            return any(self._holds(t, unknown) for t in tree if not isinstance(t, str))
        return bool(tree == unknown)

    def _meet_all(self, one: Sequence[Tree], other: Sequence[Tree]) -> None:
        if len(one) != len(other):
            raise _Mismatch
        for a, b in zip(one, other, strict=True):
            self._meet(a, b)

    def _joined(self, tree: Tree) -> tuple[Tree, Tree]:
        found = self._find(tree)
        if isinstance(found, int):
            parts = (self._new(), self._new())
            self._bound[found] = ("+", *parts)
            return parts
        if found[0] != "+":
            raise _Mismatch
        return found[1], found[2]

    # -- operators --------------------------------------------------------------------------------

    def _rule(self, x: Expr, of: list[list[Tree]]) -> list[Tree]:
        match x.op:
            case "input":
                return [self._new() for _ in range(self._ranks.get(x, self._rank))]
            case "add" | "mul":
                if of[0] and of[1]:
                    self._meet_all(*of)
                return of[0] or of[1]
            case "relu":
                return of[0]
            case "matmul":
                self._meet(of[0][1], of[1][0])
                return [of[0][0], of[1][1]]
            case "transpose":
                return of[0][::-1]
            case "concat" | "split":
                return self._pieces(x, of)
            case "conv":
                return self._conv(x, *of)
            case "enlarge":
                margin = self._new()
                self._sizes[x] = margin
                return [*of[0][:2], ("+", margin, ("+", of[0][2], margin))]
        # Pools that name their kernel alike have one.
        name = str(x.attr("kernel"))
        kernel = self._kernels.setdefault(name, self._new()) if name else self._new()
        self._sizes[x] = kernel
        return [*of[0][:2], self._window(x, of[0][2], kernel)]

    def _pieces(self, x: Expr, of: list[list[Tree]]) -> list[Tree]:
        axis = int(str(x.attr("axis")))
        if axis >= len(of[0]):
            raise _Mismatch
        if x.op == "concat":
            for n, (a, b) in enumerate(zip(*of, strict=True)):
                if n != axis:
                    self._meet(a, b)
            joined = ("+", of[0][axis], of[1][axis])
            return [*of[0][:axis], joined, *of[0][axis + 1 :]]
        parts = self._sizes[x] = self._joined(of[0][axis])
        return [*of[0][:axis], parts[int(str(x.attr("index")))], *of[0][axis + 1 :]]

    def _conv(self, x: Expr, image: list[Tree], kernel: list[Tree]) -> list[Tree]:
        if self._groups[x] == 1:
            self._meet(image[1], kernel[1])
        else:
            for tree in self._joined(image[1]):
                self._meet(tree, kernel[1])
            self._meet(*self._joined(kernel[0]))
        return [image[0], kernel[0], self._window(x, image[2], kernel[2])]

    def _window(self, x: Expr, h: Tree, r: Tree) -> Tree:
        window = str(x.attr("window"))
        if window == UNIT:
            return h
        return ("window", window, h) if window == SAME else ("window", window, h, r)

    # -- result -----------------------------------------------------------------------------------

    def typed(self, outputs: Sequence[Expr]) -> tuple[Expr, ...]:
        half = len(outputs) // 2
        for left, right in zip(outputs[:half], outputs[half:], strict=False):
            pairs = (self._types[left], self._types[right])
            # However the parts of an axis were joined, they are the same parts.
            if [self._flat(t) for t in pairs[0]] != [self._flat(t) for t in pairs[1]]:
                self._meet_all(*pairs)
        self._named: dict[int, str] = {}
        new: dict[Expr, Expr] = {}
        for x in self._order:
            attrs = x.attrs
            if x.op == "input":
                attrs = (x.name, self._type(x))
            elif x.op == "split":
                attrs = (*x.attrs[:2], tuple(self._axis(t) for t in self._sizes[x]))
            elif x.op == "conv":
                attrs = (x.attrs[0], self._groups[x])
            elif x in self._sizes:
                size = self._axis(self._sizes[x])
                if len(size) != 1:
                    raise _Mismatch
                attrs = (*x.attrs[:-1], size[0])
            new[x] = Expr(x.op, attrs, tuple(new[a] for a in x.args))
        found = tuple(new[x] for x in outputs)
        try:
            for x in nodes(*found):
                x.type  # noqa: B018 - the shape rules have the last word
        except InputError:
            raise _Mismatch from None
        return found

    def _type(self, x: Expr) -> Type:
        return tuple(map(self._axis, self._types[x]))

    def _axis(self, tree: Tree) -> Axis:
        tree = self._find(tree)
        if isinstance(tree, int):
            if tree not in self._named:
                number = len(self._named)
                more = number // len(_NAMES)
                self._named[tree] = _NAMES[number % len(_NAMES)] + (str(more) if more else "")
            return (self._named[tree],)
        if tree[0] == "+":
            return self._axis(tree[1]) + self._axis(tree[2])
        return (f"{tree[1]}({','.join(axis_text(self._axis(t)) for t in tree[2:])})",)


def untyped(root: Expr, *, axis: int | None = None, window: str = "") -> Expr:
    """The same without types and sizes, but for scalars; with another axis or window for all."""
    found: dict[Expr, Expr] = {}
    for x in nodes(root):
        attrs = x.attrs
        if x.op == "input":
            attrs = (x.name, () if x.type == () else "")
        elif x.op in ("concat", "split"):
            first = x.attrs[0] if axis is None else axis
            attrs = (first, *x.attrs[1:2], *(((),) if x.op == "split" else ()))
        elif x.op == "conv":
            attrs = (window or x.attrs[0], *x.attrs[1:])
        elif x.op in ("max_pool", "avg_pool"):
            attrs = (window or x.attrs[0], "")
        found[x] = Expr(x.op, attrs, tuple(found[a] for a in x.args))
    return found[root]
