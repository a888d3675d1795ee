"""Enumeration: every graph of a universe up to a number of operators, by the value that it has.

Values are built from operands that are the first of their kind: what equals an earlier value is
noted as equal and not built upon, as a rule between the two covers whatever stands on it. Graphs
that differ only in the names of inputs are enumerated as often as their parts are needed, and
reported once: where inputs of a sort are met in order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations, product

import numpy as np

from mirage_py.axioms.substitutions.expression import Attr, Expr
from mirage_py.search.substitutions.arithmetic import PRIME, Array, applied
from mirage_py.search.substitutions.universe import Tree, Universe

COMMUTE = ("add", "mul")
_ONE = ("relu", "transpose", "split", "enlarge", "max_pool", "avg_pool")


@dataclass(slots=True)
class Value:
    """A graph with one output: its last operator, operands by number, and what it evaluates to.

    The array is kept of graphs that others are built on.
    """

    op: str
    attrs: tuple[Attr, ...]
    args: tuple[int, ...]
    shape: tuple[Tree, ...]
    array: Array | None


class Enumeration:
    """All values; ``equal`` are pairs of numbers, the first one of a kind and another."""

    def __init__(self, universe: Universe, sizes: Mapping[str, int], seed: int) -> None:
        self.universe, self.sizes = universe, sizes
        self.values: list[Value] = []
        self.equal: list[tuple[int, int]] = []
        self.built = 0
        self._known: dict[tuple[object, ...], int] = {}
        self._splits: dict[tuple[object, ...], int] = {}
        self._levels: list[list[int]] = [[]]
        self._operators: dict[int, frozenset[int]] = {}
        self._made_of: dict[frozenset[int], list[int]] = {}
        self._starts = [0]
        random = np.random.Generator(np.random.PCG64(seed))
        for name, shape in universe.inputs:
            array = random.integers(0, PRIME, [self.length(t) for t in shape])
            self._levels[0].append(len(self.values))
            value = Value("input", (name,), (), shape, array)
            self._operators[len(self.values)] = frozenset()
            self._known[self._key(value)] = len(self.values)
            self.values.append(value)

    def run(self) -> None:
        """Enumerate."""
        for count in range(1, self.universe.most + 1):
            self._levels.append([])
            self._starts.append(len(self.values))
            for op, attrs in self.universe.operators:
                for args in self._operands(op, count):
                    self._try(op, attrs, args, count)

    def level(self, number: int) -> int:
        """How many operators a value has."""
        return bisect_right(self._starts, number) - 1

    def at(self, level: int) -> range:
        """The values of so many operators."""
        ends = [*self._starts[1:], len(self.values)]
        return range(self._starts[level], ends[level])

    # -- shapes -----------------------------------------------------------------------------------

    def length(self, tree: Tree) -> int:
        """How long an axis is."""
        return self.sizes[tree] if isinstance(tree, str) else sum(map(self.length, tree))

    def shape(
        self, op: str, attrs: tuple[Attr, ...], of: Sequence[tuple[Tree, ...]]
    ) -> tuple[Tree, ...] | None:
        """The shape of an operator's result; None where it has none for its operands."""
        first = of[0]
        match op:
            case "add" | "mul":
                # A scalar stands on the right of what it scales; scalars make scalars by products.
                if op == "add":
                    return first if first and first == of[1] else None
                return first if first == of[1] or not of[1] else None
            case "matmul":
                fits = first and of[1] and first[1] == of[1][0]
                return (first[0], of[1][1]) if fits else None
            case "transpose":
                return first[::-1] or None
            case "concat":
                return self._joined(int(str(attrs[0])), first, of[1])
            case "split":
                axis = int(str(attrs[0]))
                if len(first) <= axis or isinstance(first[axis], str):
                    return None
                return (*first[:axis], first[axis][int(str(attrs[1]))], *first[axis + 1 :])
            case "conv":
                return _convolved(int(str(attrs[1])), first, of[1])
            case "enlarge":
                return (*first[:2], ("e", (first[2], "e"))) if first[2:] == ("r",) else None
            case "max_pool" | "avg_pool":
                return first if first[2:] == ("h",) else None
        return first or None

    def _joined(
        self, axis: int, left: tuple[Tree, ...], right: tuple[Tree, ...]
    ) -> tuple[Tree, ...] | None:
        if len(left) <= axis or len(left) != len(right):
            return None
        if (*left[:axis], *left[axis + 1 :]) != (*right[:axis], *right[axis + 1 :]):
            return None
        return (*left[:axis], (left[axis], right[axis]), *left[axis + 1 :])

    # -- values -----------------------------------------------------------------------------------

    def _operands(self, op: str, count: int) -> Iterator[tuple[int, ...]]:
        if op in _ONE:
            yield from ((n,) for n in self._levels[count - 1])
            return
        for left in range(count):
            for right in range(count):
                for a, b in self._pairs(left, right, count - 1):
                    # That they commute is a rule among graphs of one operator.
                    if op not in COMMUTE or a <= b or not self.values[b].shape or count == 1:
                        yield a, b

    def _pairs(self, left: int, right: int, whole: int) -> Iterator[tuple[int, int]]:
        """Operands that have so many operators together; shared ones count once."""
        if left == whole:
            yield from ((a, b) for a in self._levels[left] for b in self._within(a, right))
        elif right == whole:
            yield from ((a, b) for b in self._levels[right] for a in self._within(b, left))
        elif left + right >= whole:
            of = self._operators
            for a, b in product(self._levels[left], self._levels[right]):
                if len(of[a] | of[b]) == whole:
                    yield a, b

    def _within(self, whole: int, count: int) -> list[int]:
        """Values of a number of operators, all of them among those of another value."""
        if not count:
            return self._levels[0]
        parts = combinations(sorted(self._operators[whole]), count)
        return [n for part in parts for n in self._made_of.get(frozenset(part), ())]

    def _try(self, op: str, attrs: tuple[Attr, ...], args: tuple[int, ...], count: int) -> None:
        of = [self.values[a] for a in args]
        shape = self.shape(op, attrs, [v.shape for v in of])
        if shape is None:
            return
        number, first = len(self.values), 0
        if op == "split":
            self._splits.setdefault((attrs[0], args), number)
            first = self.length(of[0].shape[int(str(attrs[0]))][0])
        arrays = [v.array for v in of]
        array = applied(op, attrs, arrays, first, self.sizes)  # type: ignore[arg-type]
        value = Value(op, attrs, args, shape, array)
        self.built += 1
        known = self._known.setdefault(self._key(value), number)
        self.values.append(value)
        if known == number and count < self.universe.most:
            self._levels[count].append(number)
            self._operators[number] = self.operators(number)
            self._made_of.setdefault(self._operators[number], []).append(number)
            return
        value.array = None
        if known != number:
            self.equal.append((known, number))

    def operators(self, number: int) -> frozenset[int]:
        """The operators of a value, by the numbers of their values; parts of one split are one."""
        found = self._operators.get(number)
        if found is not None:
            return found
        value = self.values[number]
        own = number
        if value.op == "split":
            own = self._splits[value.attrs[0], value.args]
        return self.joint(value.args) | {own}

    def joint(self, numbers: Sequence[int]) -> frozenset[int]:
        """The operators of several values."""
        return frozenset[int]().union(*map(self.operators, numbers))

    def _key(self, value: Value) -> tuple[object, ...]:
        assert value.array is not None
        return _fingerprint(value.array)

    def known(self, array: Array) -> int | None:
        """The first value that evaluates to this."""
        return self._known.get(_fingerprint(array))

    def is_canonical(self, args: Sequence[int]) -> bool:
        """Whether inputs of one sort are met in their order."""
        met = [self.values[n] for n in self._inputs(args)]
        by_sort: dict[tuple[Tree, ...], list[str]] = {}
        for v in met:
            by_sort.setdefault(v.shape, []).append(str(v.attrs[0]))
        sorts = {s: [n for n, shape in self.universe.inputs if shape == s] for s in by_sort}
        return all(names == sorts[s][: len(names)] for s, names in by_sort.items())

    def _inputs(self, args: Sequence[int]) -> list[int]:
        met: dict[int, None] = {}
        stack = list(reversed(args))
        while stack:
            n = stack.pop()
            value = self.values[n]
            if value.args:
                stack.extend(reversed(value.args))
            else:
                met[n] = None
        return list(met)

    def expression(self, number: int) -> Expr:
        """A value as an expression, with the shapes that it has here."""
        value = self.values[number]
        of = tuple(map(self.expression, value.args))
        if value.op == "input":
            return Expr("input", (value.attrs[0], tuple(map(flat, value.shape))))
        attrs = value.attrs
        if value.op == "split":
            attrs = (*attrs, split_sizes(self.values[value.args[0]].shape, int(str(attrs[0]))))
        return Expr(value.op, attrs, of)


def _fingerprint(array: Array) -> tuple[object, ...]:
    return array.shape, blake2b(array.tobytes(), digest_size=16).digest()


def split_sizes(shape: tuple[Tree, ...], axis: int) -> tuple[tuple[str, ...], ...]:
    """The two parts of an axis that was joined."""
    tree = shape[axis]
    assert isinstance(tree, tuple)
    return flat(tree[0]), flat(tree[1])


def flat(tree: Tree) -> tuple[str, ...]:
    """The parts of an axis in their order."""
    return (tree,) if isinstance(tree, str) else sum(map(flat, tree), ())


def _convolved(
    groups: int, image: tuple[Tree, ...], kernel: tuple[Tree, ...]
) -> tuple[Tree, ...] | None:
    if image[2:] != ("h",) or not kernel or kernel[2] == "h":
        return None
    if groups == 1:
        return (image[0], kernel[0], image[2]) if image[1] == kernel[1] else None
    c, o = image[1], kernel[0]
    fits = isinstance(c, tuple) and isinstance(o, tuple) and c == (kernel[1],) * 2
    return (image[0], o, image[2]) if fits and o[0] == o[1] else None
