"""Terms with their values on one tiny random input, evaluated in bulk; equal terms are one.

A term is an operation on earlier terms, or a leaf. Terms are told apart by how they are written and
by nothing else: two of them may have equal values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from completeness.draws import Draw, evaluated
from completeness.graphs import Graph, Step
from completeness.kinds import Kind, Operation, reachable, result_kind
from numpy.typing import NDArray

from mirage_py.ugraph.field import FieldArray, concatenate

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
NONE = -1
FAR = 99
_GROWING = ("op", "left", "right", "kind", "hits", "_group", "_row", "_values", "_keys", "_ids")
_ID_BITS = 28
_ROWS = 1 << 16
_DIVIDES = ("div", "rsqrt")


class Terms:
    """``op``, ``left``, ``right`` and ``kind`` have an entry for each term, leaves first.

    A value has the axes of the draw. ``hits`` has a bit for each output that a term is.
    """

    def __init__(
        self, draw: Draw, outputs: Sequence[FieldArray], operations: Sequence[Operation]
    ) -> None:
        program = draw.program
        self._meaning = draw.meaning
        self._configuration = draw.configuration
        self._axes = {d: (loop + 1, tile + 1) for d, (loop, tile) in draw.axes.items()}
        self.operations = tuple(operations)
        self.kinds = reachable([s.kind for s in draw.leaves], self.operations, self._configuration)
        self._targets: list[tuple[int, FieldArray, int]] = []
        for number, (output, value) in enumerate(zip(program.outputs, outputs, strict=True)):
            dims = program.nodes[output.node].dims
            # A value of a loop is stored tile by tile, so it must have the loop's dimension.
            legal = [n for n, k in enumerate(self.kinds) if k.dims == dims]
            legal = [n for n in legal if self.kinds[n].looped in (None, *dims)]
            self._targets += [(n, value, 1 << number) for n in legal]
        self.op = self.left = self.right = self.kind = self.hits = np.zeros(0, np.int64)
        # Values lie together by kind and by whether they have a q part: those have one shape.
        self._group = self._row = np.zeros(0, np.int64)
        self._values: dict[int, FieldArray] = {}
        self._keys = self._ids = np.zeros(0, np.int64)
        none = np.full(len(draw.leaves), NONE)
        chunks = []
        for number, leaf in enumerate(draw.leaves):
            value = draw.value_of(leaf)
            batch = value.reshape((1, *value.shape))
            chunks.append((np.array([number]), self._group_of(leaf.kind, value), batch))
        self._append((none, none, none), chunks)

    def __len__(self) -> int:
        return len(self.op)

    def graph(self, roots: Sequence[int], leaves: Sequence[Step]) -> Graph:
        """The terms of the outputs as one graph."""
        steps: list[Step] = []
        position: dict[int, int] = {}

        def place(term: int) -> int:
            if term not in position:
                step = leaves[term] if term < len(leaves) else self._step(term, place)
                position[term] = len(steps)
                steps.append(step)
            return position[term]

        outputs = tuple(place(root) for root in roots)
        return Graph(tuple(steps), outputs)

    def _step(self, term: int, place: Callable[[int], int]) -> Step:
        operation = self.operations[self.op[term]]
        operands = [self.left[term], self.right[term]][: operation.arity]
        args = [place(int(a)) for a in operands]
        if operation.swapped:
            args.reverse()
        return Step(operation.op, tuple(args), operation.attr, self.kinds[self.kind[term]])

    def results(self) -> Ints:
        """The kind that an operation makes of two kinds: table[operation, left, right]."""
        count = len(self.kinds)
        table = np.full((len(self.operations), count, count), NONE)
        for o, operation in enumerate(self.operations):
            for a, left in enumerate(self.kinds):
                for b, right in enumerate(self.kinds):
                    operands = (left, right)[: operation.arity]
                    kind = result_kind(operation, operands, self._configuration)
                    table[o, a, b] = NONE if kind is None else self.kinds.index(kind)
        return table

    def distances(self) -> Ints:
        """For each kind the least number of operators from it to the kind of an output."""
        table = self.results()
        distance = np.full(len(self.kinds), FAR)
        distance[[kind for kind, _, _ in self._targets]] = 0
        for _ in self.kinds:
            after = np.where(table == NONE, FAR, distance[table]) + 1
            distance = np.minimum(distance, np.minimum(after.min((0, 2)), after.min((0, 1))))
        return distance

    def joint_distances(self) -> Ints:
        """The same for two values that are both to be used; 0 where each can be an output."""
        table, alone = self.results(), self.distances()
        step = np.full((len(self.kinds), len(self.kinds)), FAR)
        for first in range(len(self.kinds)):
            for made in dict.fromkeys([*table[:, first].flat, *table[:, :, first].flat]):
                if made != NONE:
                    step[first, made] = 1
        done = np.where(alone == 0, 0, FAR)
        distance = np.where(table == NONE, FAR, alone[table]).min(0) + 1
        distance = np.minimum(distance, distance.T)
        if len(dict.fromkeys(bit for _, _, bit in self._targets)) > 1:
            distance = np.minimum(distance, done[:, None] + done[None, :])
        for _ in range(2 * len(self.kinds)):
            moved = (step[:, :, None] + distance[None, :, :]).min(1)
            distance = np.minimum(distance, np.minimum(moved, moved.T))
        return distance

    def mark(self) -> Mapping[str, object]:
        """What there is now, for ``forget_since``."""
        return {name: getattr(self, name) for name in _GROWING}

    def forget_since(self, mark: Mapping[str, object]) -> None:
        """Drop the terms made since the mark. Nothing is ever written in place."""
        for name, value in mark.items():
            setattr(self, name, value)

    def make(self, op: Ints, left: Ints, right: Ints) -> Ints:
        """The term of each operation on two terms; ``NONE`` where it divides by zero."""
        keys, inverse = np.unique(_packed(op, left, right), return_inverse=True)
        place = np.minimum(np.searchsorted(self._keys, keys), max(0, len(self._keys) - 1))
        known = self._keys[place] == keys if len(self._keys) else np.zeros(len(keys), bool)
        ids = np.full(len(keys), NONE)
        ids[known] = self._ids[place[known]]
        fresh = keys[~known]
        columns = _unpacked(fresh)
        ids[~known] = self._append(columns, list(self._evaluate(*columns)))
        self._keys = np.concatenate([self._keys, fresh])
        self._ids = np.concatenate([self._ids, ids[~known]])
        order = np.argsort(self._keys, kind="stable")
        self._keys, self._ids = self._keys[order], self._ids[order]
        return ids[inverse]

    def hits_of(self, op: Ints, left: Ints, right: Ints) -> Ints:
        """The outputs that each operation on two terms gives, without keeping the terms."""
        found = np.zeros(len(op), np.int64)
        for rows, group, value in self._evaluate(op, left, right):
            found[rows] = self._hits_in(group, value)
        return found

    # -- evaluation ------------------------------------------------------------------------------

    def _evaluate(
        self, op: Ints, left: Ints, right: Ints
    ) -> Iterator[tuple[Ints, int, FieldArray]]:
        """Rows that are alike, their group and their values. What divides by zero is left out."""
        groups = 2 * len(self.kinds) + 1
        other = np.where(right == NONE, groups - 1, self._group[right])
        code = (op * groups + self._group[left]) * groups + other
        order = np.argsort(code, kind="stable")
        bounds = np.flatnonzero(np.diff(code[order], prepend=-1, append=-1))
        for start, stop in pairwise(int(b) for b in bounds):
            for first in range(start, stop, _ROWS):
                rows = order[first : min(stop, first + _ROWS)]
                operation = self.operations[int(op[rows[0]])]
                terms = [left[rows], right[rows]][: operation.arity]
                yield from self._evaluate_alike(rows, operation, terms)

    def _evaluate_alike(
        self, rows: Ints, operation: Operation, terms: list[Ints]
    ) -> Iterator[tuple[Ints, int, FieldArray]]:
        kinds = [self.kinds[self.kind[t[0]]] for t in terms]
        kind = result_kind(operation, kinds, self._configuration)
        assert kind is not None
        args = [_taken(self._values[self._group[t[0]]], self._row[t]) for t in terms]
        if operation.swapped:
            args.reverse()
        if operation.op in _DIVIDES:
            whole = _without_zero(args[-1])
            rows, args = rows[whole], [_taken(a, whole) for a in args]
            if not len(rows):
                return
        value = evaluated(
            self._meaning, operation.op, operation.attr, args, kinds[0].looped, self._axes
        )
        yield rows, self._group_of(kind, value), value

    # -- storage ---------------------------------------------------------------------------------

    def _group_of(self, kind: Kind, value: FieldArray) -> int:
        return 2 * self.kinds.index(kind) + (value.q is not None)

    def _append(
        self, columns: tuple[Ints, Ints, Ints], chunks: Sequence[tuple[Ints, int, FieldArray]]
    ) -> Ints:
        """Numbers of the new terms, one for each row of the columns, ``NONE`` without a value."""
        ids = np.full(len(columns[0]), NONE)
        if not chunks:
            return ids
        rows = np.concatenate([rows for rows, _, _ in chunks])
        ids[rows] = np.arange(len(self), len(self) + len(rows))
        hits = [self._hits_in(group, value) for _, group, value in chunks]
        self.op, self.left, self.right = (
            np.concatenate([old, new[rows]])
            for old, new in zip((self.op, self.left, self.right), columns, strict=True)
        )
        self.hits = np.concatenate([self.hits, *hits])
        new_group = np.concatenate([np.full(len(r), group) for r, group, _ in chunks])
        self._group = np.concatenate([self._group, new_group])
        self.kind = self._group // 2
        self._row = np.concatenate([self._row, *self._stored(chunks)])
        return ids

    def _stored(self, chunks: Sequence[tuple[Ints, int, FieldArray]]) -> list[Ints]:
        """Keep the values; the places of each chunk's among those of its group."""
        parts = {group: [value] for group, value in self._values.items()}
        places = []
        for rows, group, value in chunks:
            known = parts.setdefault(group, [])
            first = sum(len(v.p) for v in known)
            places.append(np.arange(first, first + len(rows)))
            known.append(value)
        self._values = {group: _joined(values) for group, values in parts.items()}
        return places

    def _hits_in(self, group: int, value: FieldArray) -> Ints:
        found = np.zeros(len(value.p), np.int64)
        for kind, target, bit in self._targets:
            if kind == group // 2:
                same = (value.p == target.p).reshape(len(found), -1).all(1)
                if value.q is not None and target.q is not None:
                    same &= (value.q == target.q).reshape(len(found), -1).all(1)
                found |= np.where(same, bit, 0)
        return found


def _packed(op: Ints, left: Ints, right: Ints) -> Ints:
    return op << 2 * _ID_BITS | left << _ID_BITS | right + 1


def _unpacked(keys: Ints) -> tuple[Ints, Ints, Ints]:
    mask = (1 << _ID_BITS) - 1
    return keys >> 2 * _ID_BITS, keys >> _ID_BITS & mask, (keys & mask) - 1


def _taken(value: FieldArray, rows: Ints | Bools) -> FieldArray:
    return FieldArray(value.p[rows], None if value.q is None else value.q[rows])


def _joined(values: Sequence[FieldArray]) -> FieldArray:
    return values[0] if len(values) == 1 else concatenate(values, 0)


def _without_zero(value: FieldArray) -> Bools:
    whole = (value.p != 0).reshape(len(value.p), -1).all(1)
    if value.q is not None:
        whole &= (value.q != 0).reshape(len(value.p), -1).all(1)
    return whole
