"""The closure: every tensor that a configuration can compute and that can become part of an output.

Tensors are processed in the order of their stages. A tensor is combined with earlier ones only
where the class table has a row for the result, so every tensor computes a subexpression of the
program in some equal form. The result is evaluated and merged with a tensor of equal value: each
value is computed once, and every further way to compute it becomes an alternative.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod

from mirage_py.axioms.terms.class_table import ClassTable, Row
from mirage_py.reasons import Code, Reason, reason
from mirage_py.search.closure.pool import Alternative, Merging, OperatorCount, Pool
from mirage_py.search.closure.rules import RefusedError, joint_loop, joint_stage, may_be_built
from mirage_py.search.space.abstraction import loop_axis, tile_axis
from mirage_py.search.space.counters import Counter
from mirage_py.search.space.leaves import Leaf
from mirage_py.search.space.spaces import Configuration
from mirage_py.search.space.values import Values
from mirage_py.ugraph.field import DivisionByZero
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.node import Access
from mirage_py.ugraph.operators import ELEMENTWISE, all_operators

# Elements of all values in a pool at most, 16 bytes each: values of six dimensions are large.
_MOST_ELEMENTS = 1 << 23
# Candidates between two looks at the clock.
_LOOK_EVERY = 1_000

_ELEMENTWISE = {op.abstract_name: op for op in all_operators() if op.kind == ELEMENTWISE}


@dataclass(frozen=True, slots=True)
class Given:
    """A tensor that an earlier kernel stores, under its name in device memory.

    ``value`` is its number among the values, ``classes`` what it computes.
    """

    name: str
    value: int
    classes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ground:
    """What all closures of one search share.

    ``leaves``          that kernels may read
    ``buildable``       the dimensions of the program's nodes: a product that outgrows its
                        operands must fit in one of them, any other is only ever contracted and
                        never built
    ``skip_divisions``  leave out what divides by zero, instead of asking for another draw
    ``max_operators``   see SearchLimits, and so for ``merging``
    """

    table: ClassTable
    leaves: tuple[Leaf, ...]
    buildable: tuple[frozenset[str], ...]
    max_loops: int
    max_tensors: int
    skip_divisions: bool
    max_operators: int | None = None
    merging: Merging = "values"


def given_access(name: str, dims: Sequence[str]) -> Access:
    """How a stored tensor is read: one axis for each of its dimensions, in order."""
    return Access(name, tuple(ix.dim(d) for d in dims))


class Closure:
    """The closure of one configuration. Raises DivisionByZero if the inputs must be drawn again."""

    def __init__(
        self,
        ground: Ground,
        values: Values,
        configuration: Configuration,
        counter: Counter,
        given: Sequence[Given] = (),
    ) -> None:
        self.ground = ground
        self.given = given
        self.values = values
        self.configuration = configuration
        self.counter = counter
        self.pool = Pool(ground.merging)
        self._operators = OperatorCount(ground.max_operators)
        self._queue: list[tuple[int, int, int, int, int]] = []
        self._pushed = 0
        self._elements = 0
        # Taken tensors by class, as they were taken: what a row's operands are looked up in.
        self._taken: dict[int, list[int]] = {}

    def run(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Close the pool. False when a bound on its size was met first, or ``stop`` said so."""
        self._add_leaves()
        look_at = self.counter.candidates
        while self._queue:
            if self.counter.candidates >= look_at:
                if stop():
                    return False
                look_at = self.counter.candidates + _LOOK_EVERY
            *_, number, class_ = heapq.heappop(self._queue)
            self._take(number, class_)
            if len(self.pool) > self.ground.max_tensors or self._elements > _MOST_ELEMENTS:
                return False
        return True

    # -- leaves ----------------------------------------------------------------------------------

    def _add_leaves(self) -> None:
        table = self.ground.table
        for row in table.rows:
            # The number of iterations or of points in a tile is no value of a family: it has no
            # tiles yet.
            if row.op == "const" or (row.op == "size" and row.attr in self.values.space.dims):
                attr = float(row.attr) if row.op == "const" else row.attr
                value = self.values.scalar(row.op, row.attr)
                self._keep(value, None, 0, Alternative(row.op, (), attr), row.result)
        for leaf in self.ground.leaves:
            class_ = table.lookup("leaf", leaf.name, ())
            if class_ is None:
                continue
            value = self.values.leaf(leaf.node)
            way = Alternative(leaf.node.op, (), leaf.node.attr)
            self._read(value, leaf.dims, way, class_)
        for given in self.given:
            dims = self.values.space.tile_dims(self.values.shape(given.value))
            way = Alternative("load", (), given_access(given.name, dims))
            for class_ in given.classes:
                self._read(given.value, dims, way, class_)

    def _read(self, value: int, dims: Sequence[str], way: Alternative, class_: int) -> None:
        """Something in device memory: tile by tile in each loop it belongs to, or unsplit."""
        loops = [d for d in self.configuration.looped if d in dims]
        for loop in loops:
            self._keep(value, loop, 1, way, class_)
        if not loops:
            self._keep(value, None, 0, way, class_)

    # -- taking a tensor -------------------------------------------------------------------------

    def _take(self, number: int, class_: int) -> None:
        rows = self.ground.table.by_argument[class_]
        if self._operators.is_full(number):
            if rows:
                self._refuse_operators(self.pool[number].alternatives[0])
            return
        taken = self._taken.setdefault(class_, [])
        if number not in taken:
            taken.append(number)
        for row in rows:
            if row.op in ("sum", "max"):
                self._reduce(number, row)
            elif row.op in _ELEMENTWISE:
                for args in self._operands(number, class_, row):
                    self._combine(row, args)

    def _operands(self, number: int, class_: int, row: Row) -> Iterator[tuple[int, ...]]:
        """Every choice of taken tensors for the row that includes this one."""
        choices = [tuple(self._taken.get(c, ())) for c in row.args]
        return _with_member(number, choices, [c == class_ for c in row.args])

    def _reduce(self, number: int, row: Row) -> None:
        """A sum or maximum: over the tile, the unsplit dimension, or the iterations of a loop."""
        dim = row.attr.rpartition(".")[0]
        tensor = self.pool[number]
        loop, tile = self.values.space.axes[dim]
        whole = tensor.looped != dim
        if row.attr == loop_axis(dim) and whole:
            return  # the second half of a sum over the whole dimension, which starts with its tile
        self.counter.candidates += 1
        if dim in self.configuration.gridded:
            way = Alternative(row.op, (number,), (dim,))
            self._refuse(reason(Code.GRID), way)
            return
        if row.attr == tile_axis(dim):
            way = Alternative(row.op, (number,), (dim,))
            result = self._whole(row) if whole else row.result
            if result is None or dim not in tensor.dims:
                self._refuse(reason(Code.NO_TILE), way)
                return
            axes, looped = ((loop, tile), tensor.looped) if whole else ((tile,), dim)
        else:
            way, result = Alternative(f"accum_{row.op}", (number,), (dim,)), row.result
            if dim in tensor.dims:
                self._refuse(reason(Code.REDUCED_TILE), way)
                return
            axes, looped = (loop,), None
        compute = partial(self.values.reduce, row.op, tensor.value, axes)
        self._evaluate(compute, looped, tensor.stage, way, result)

    def _whole(self, row: Row) -> int | None:
        """The class of a reduction over the tile once it goes over the iterations as well."""
        dim = row.attr.rpartition(".")[0]
        return self._over_iterations(row.op, dim, row.result)

    def _over_iterations(self, op: str, dim: str, class_: int) -> int | None:
        if dim not in self.values.space.loopable:
            return class_
        return self.ground.table.lookup(op, loop_axis(dim), (class_,))

    def _combine(self, row: Row, args: tuple[int, ...]) -> None:
        operator = _ELEMENTWISE[row.op]
        if operator.commutative and list(args) != sorted(args):
            return  # the mirrored row brings it
        self.counter.candidates += 1
        # One spelling of a square is enough.
        squared = operator.name == "mul" and args[0] == args[1]
        way = Alternative("square", args[:1]) if squared else Alternative(operator.name, args)
        operands = [self.pool[a] for a in args]
        try:
            looped = joint_loop(operands)
            stage = joint_stage(operands, looped, self.ground.max_loops)
        except RefusedError as refusal:
            self._refuse(refusal.rule, way)
            return
        if operator.name == "mul":
            self._contract(args, looped, stage, row.result)
        if not may_be_built(operands, self.ground.buildable):
            self._refuse(reason(Code.MATERIALISATION), way)
            return
        numbers = tuple(t.value for t in operands)
        compute = partial(self.values.apply, operator.name, numbers)
        self._evaluate(compute, looped, stage, way, row.result)

    # -- contractions ----------------------------------------------------------------------------

    def _contract(
        self, args: tuple[int, ...], looped: str | None, stage: int, product_class: int
    ) -> None:
        """Every contraction of two tensors that have a side of their own each.

        Without one, the product is no larger than its larger operand: then it is built and summed.
        """
        left, right = (self.pool[a] for a in args)
        shared = [d for d in left.dims if d in right.dims]
        if len(shared) in (0, len(left.dims), len(right.dims)):
            return
        axes_of = self.values.space.axes
        for dims, class_ in self._sums(product_class, shared, looped):
            self.counter.candidates += 1
            axes = [x for d in dims for x in (axes_of[d][1:] if d == looped else axes_of[d])]
            compute = partial(self.values.contract, (left.value, right.value), axes)
            way = Alternative("matmul", args, dims)
            self._evaluate(compute, looped, stage, way, class_)

    def _sums(
        self, class_: int, shared: Sequence[str], looped: str | None
    ) -> Iterator[tuple[tuple[str, ...], int]]:
        """The sums over some of the shared dimensions that the table knows for a product."""
        for position, dim in enumerate(shared):
            if dim in self.configuration.gridded:
                continue
            reduced = self.ground.table.lookup("sum", tile_axis(dim), (class_,))
            if reduced is not None and dim != looped:
                reduced = self._over_iterations("sum", dim, reduced)
            if reduced is None:
                continue
            yield (dim,), reduced
            for more, final in self._sums(reduced, shared[position + 1 :], looped):
                yield (dim, *more), final

    # -- results ---------------------------------------------------------------------------------

    def _evaluate(
        self,
        compute: Callable[[], int],
        looped: str | None,
        stage: int,
        way: Alternative,
        class_: int,
    ) -> None:
        if not self._operators.allows(way):
            self._refuse_operators(way)
            return
        self.counter.evaluations += 1
        try:
            value = compute()
        except DivisionByZero:
            if not self.ground.skip_divisions:
                raise
            self._refuse(reason(Code.ZERO_DIVISION), way)
            return
        self._keep(value, looped, stage, way, class_)

    def _keep(
        self, value: int, looped: str | None, stage: int, way: Alternative, class_: int
    ) -> None:
        dims = self.values.space.tile_dims(self.values.shape(value))
        number, moved = self.pool.add(value, looped, dims, stage, way)
        moved |= self._operators.note(number, way)
        tensor = self.pool[number]
        if not tensor.classes:
            self._elements += prod(self.values.shape(value))
        # With a class alone nothing changes for the others: where the laws were cut off before they
        # had nothing to add, one value has hundreds.
        fresh = class_ not in tensor.classes
        if fresh:
            tensor.classes.append(class_)
        elif not moved:
            self.counter.merged += 1
        operators = self._operators.least(number)
        for known in tensor.classes if moved else [class_] if fresh else []:
            entry = (tensor.stage, operators, self._pushed, number, known)
            heapq.heappush(self._queue, entry)
            self._pushed += 1

    def _refuse_operators(self, way: Alternative) -> None:
        """Refuse a way to make a tensor, or whatever could be made of the tensor it makes."""
        self._refuse(reason(Code.MAX_OPERATORS, self._operators.most), way)

    def _refuse(self, rule: Reason, way: Alternative) -> None:
        self.counter.prune(rule, lambda: f"{self.pool.formula(way)} ({self.configuration})")


def _with_member(
    number: int, choices: Sequence[Sequence[int]], places: Sequence[bool]
) -> Iterator[tuple[int, ...]]:
    """Their product, in its order, but only what has ``number`` at one of the places.

    At each of these places it is one of the choices.
    """
    if not any(places):
        return
    if len(choices) == 1:
        yield (number,)
        return
    for first in choices[0]:
        if places[0] and first == number:
            rest: Iterator[tuple[int, ...]] = product(*choices[1:])
        else:
            rest = _with_member(number, choices[1:], places[1:])
        for others in rest:
            yield (first, *others)
