"""Normal forms of graphs under known rules: equal graphs that need no e-graph.

Rules are oriented by a path ordering in which concat is the least operator and transpose the
greatest: products are taken apart into products of parts, sums of products come last but for
concat. Each side of a rule is brought into its normal form by the others before it is oriented, so
what several rules say together is used as one, as in completion. Sums and elementwise products,
once rules say that they commute and associate, are sorted lists of operands.

Two graphs with one normal form are equal by the rules. Nothing follows where the forms differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from mirage_py.axioms.substitutions.expression import OPERATORS, Attr, Expr, inputs, nodes
from mirage_py.axioms.substitutions.rule import Rule
from mirage_py.errors import InputError
from mirage_py.search.substitutions.egraph import (
    EGraph,
    Match,
    Node,
    Rewrite,
    are_equal,
    instance,
)

# The least first.
_ORDER = ["input", "concat", "split", "add", "mul", "relu", "max_pool", "avg_pool"]
_ORDER += ["matmul", "conv", "enlarge", "transpose"]
_COMMUTE = ("add", "mul")
# Steps within one normal form: a bound, as lists of operands are no part of the ordering.
_STEPS = 400
# How often rules are reduced by one another after one is learned.
_PASSES = 3


class _TooLongError(Exception):
    """No normal form within the bound."""


class NormalForms:
    """Normal forms of expressions; what is known of one is known wherever it stands."""

    def __init__(self, rewrites: Sequence[Rewrite], rank: int) -> None:
        """By some rules, of which those about any number of axes are at ``rank``."""
        self._lists = _lists(rewrites, rank)
        self._terms = EGraph()
        self._rules: dict[str, list[Rewrite]] = {}
        self._done: dict[int, int] = {}
        self._left = 0
        single = [r for r in rewrites if len(r.left) == 1]
        for r in sorted(single, key=lambda r: len([*nodes(*r.left, *r.right)])):
            self._orient(r.left[0], r.right[0])
        self._reduce()
        self._complete()

    def are_equal(self, one: Expr, other: Expr) -> bool:
        """Whether two expressions have one normal form."""
        first, second = self._of_expr(one), self._of_expr(other)
        return first is not None and first == second

    def learn(self, one: Expr, other: Expr) -> None:
        """Use that two expressions are equal, if their normal forms can be oriented."""
        if self._orient(one, other):
            self._reduce()

    def normal(self, root: Expr) -> Expr | None:
        """The normal form; None where it takes too many steps."""
        number = self._of_expr(root)
        return None if number is None else self._expression(number)

    def _orient(self, one: Expr, other: Expr) -> bool:
        first, second = self.normal(one), self.normal(other)
        if first is None or second is None or first == second:
            return False
        for left, right in ((first, second), (second, first)):
            rule = Rule("", (left,), (right,), "")
            if left.op != "input" and _is_greater(left, right) and rule.applies(forward=True):
                self._rules.setdefault(left.op, []).append(Rewrite((left,), (right,)))
                self._done.clear()
                return True
        return False

    def _reduce(self) -> None:
        """Bring each rule into the normal form that the others give it."""
        for _ in range(_PASSES):
            before = [r for some in self._rules.values() for r in some]
            for r in before:
                self._rules[r.left[0].op].remove(r)
                self._done.clear()
                self._orient(r.left[0], r.right[0])
            if before == [r for some in self._rules.values() for r in some]:
                return

    def _complete(self) -> None:
        """Learn the parts of what rules about concat put in another order: there a split and its
        concat are no longer side by side.
        """
        for rule in list(self._rules.get("concat", ())):
            whole = rule.left[0]
            axis = int(str(whole.attrs[0]))
            sizes = tuple(a.type[axis] for a in whole.args)
            for index in (0, 1):
                part = Expr("split", (axis, index, sizes), (whole,))
                self._orient(part, whole.args[index])

    # -- terms ------------------------------------------------------------------------------------

    def _of_expr(self, root: Expr) -> int | None:
        self._left = _STEPS
        try:
            done: dict[Expr, int] = {}
            for x in nodes(root):
                done[x] = self._made(x.op, x.attrs, tuple(done[a] for a in x.args))
        except _TooLongError:
            return None
        return done[root]

    def _expression(self, number: int) -> Expr:
        node = self._terms.node(number)
        return Expr(node.op, node.attrs, tuple(map(self._expression, node.args)))

    def _made(self, op: str, attrs: tuple[Attr, ...], args: tuple[int, ...]) -> int:
        """The normal form of an operator over normal forms."""
        if op in self._lists and op in _COMMUTE:
            return self._list(op, args)
        number = self._terms.add(Node(op, attrs, args))
        found = self._done.get(number)
        if found is None:
            node = self._terms.node(number)
            made = self._step(node)
            found = number if made is None else made
            self._done[number] = found
            if op == "concat":
                self._note_orders(node, found)
        return found

    def _note_orders(self, node: Node, number: int) -> None:
        """A concat matches in each order in which it can be joined, as a split may need another."""
        if node.args and self._terms.node(number) != node:
            self._terms.note(node, number)
        elif "concat" in self._lists:
            first, rest = node.args
            for other in self._terms.nodes(rest, "concat"):
                if other.attrs == node.attrs:
                    begin = self._made("concat", node.attrs, (first, other.args[0]))
                    self._terms.note(Node("concat", node.attrs, (begin, other.args[1])), number)

    def _step(self, node: Node) -> int | None:
        """The normal form of what a rule makes of a term; None where no rule fits."""
        for rule in self._rules.get(node.op, ()):
            for match in self._terms.matches_of(rule, node):
                self._left -= 1
                if self._left < 0:
                    raise _TooLongError
                try:
                    made = self._right(rule, match)
                except InputError:
                    continue
                if self._terms.types[made] == self._terms.type_of(node):
                    return made
        return None

    def _right(self, rule: Rewrite, match: Match) -> int:
        done: dict[Expr, int] = {}
        for x in nodes(rule.right[0]):
            if x.op == "input":
                done[x] = match.values[x.name]
            else:
                of = tuple(done[a] for a in x.args)
                done[x] = self._made(x.op, instance(x, match.bound), of)
        return done[rule.right[0]]

    # -- sums and elementwise products ------------------------------------------------------------

    def _list(self, op: str, args: tuple[int, ...]) -> int:
        """Operands in their order, until no rule fits two of them."""
        found = [x for a in args for x in self._operands(op, a)]
        while True:
            made = self._pair(op, found)
            if made is None:
                break
            found = made
        # Scalars stand on the right.
        types = self._terms.types
        found.sort(key=lambda n: (not types[n], n))
        number = found[0]
        for other in found[1:]:
            number = self._terms.add(Node(op, (), (number, other)))
        return number

    def _pair(self, op: str, found: list[int]) -> list[int] | None:
        """The operands after one step of two of them."""
        for a, b in permutations(range(len(found)), 2):
            node = Node(op, (), (found[a], found[b]))
            made = self._step(node)
            if made is not None:
                rest = [x for n, x in enumerate(found) if n not in (a, b)]
                return [*rest, *self._operands(op, made)]
        return None

    def _operands(self, op: str, number: int) -> list[int]:
        node = self._terms.node(number)
        if node.op != op:
            return [number]
        return [x for a in node.args for x in self._operands(op, a)]


def _lists(rewrites: Sequence[Rewrite], rank: int) -> frozenset[str]:
    """The operators that associate by some rules; sums and products if they commute as well."""
    shape = tuple((f"m{n}",) for n in range(rank))
    x, y, z = (Expr("input", (name, shape)) for name in "xyz")
    s, t = (Expr("input", (name, ())) for name in "st")
    triples = {"add": [(x, y, z)], "mul": [(x, y, z), (x, y, s), (x, s, t)], "concat": [(x, y, z)]}
    found = list[str]()
    for op, some in triples.items():
        attrs = (0,) if op == "concat" else ()
        pairs = []
        for a, b, c in some:
            one = Expr(op, attrs, (a, Expr(op, attrs, (b, c))))
            pairs.append((one, Expr(op, attrs, (Expr(op, attrs, (a, b)), c))))
        if op != "concat":
            pairs.append((Expr(op, (), (x, y)), Expr(op, (), (y, x))))
        own = [r for r in rewrites if {n.op for n in nodes(*r.left, *r.right)} <= {op, "input"}]
        if all(are_equal(*pair, own) for pair in pairs):
            found.append(op)
    return frozenset(found)


# -- the path ordering ---------------------------------------------------------------------------


def _symbol(x: Expr) -> tuple[int, tuple[Attr, ...]]:
    """An operator in the precedence: sizes do not count."""
    names = OPERATORS[x.op][1]
    counted = ("axis", "index", "groups", "window")
    own = (a for name, a in zip(names, x.attrs, strict=True) if name in counted)
    # The last axis is joined last.
    return _ORDER.index(x.op), tuple(-int(str(a)) if x.op == "concat" else a for a in own)


def _is_greater(one: Expr, other: Expr) -> bool:
    """The lexicographic path ordering, inputs being variables."""
    if one == other or one.op == "input":
        return False
    if other.op == "input":
        return other in inputs(one)
    if any(a == other or _is_greater(a, other) for a in one.args):
        return True
    first, second = _symbol(one), _symbol(other)
    if first < second or not all(_is_greater(one, a) for a in other.args):
        return False
    if first > second:
        return True
    for a, b in zip(one.args, other.args, strict=True):
        if a != b:
            return _is_greater(a, b)
    return False
