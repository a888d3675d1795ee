"""Values of tensors over a finite field, each distinct value stored once.

A value has a number; equal values (w.h.p. equal functions of the inputs) have equal numbers. An
operation on numbered values is evaluated once, however many closures ask for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirage_py.axioms.terms.term import COMPARISONS
from mirage_py.search.space.leaves import SCALAR_LEAVES, TENSOR_LEAVES, leaf_name
from mirage_py.search.space.spaces import Space
from mirage_py.ugraph.field import Field, FieldArray, FieldOps
from mirage_py.ugraph.interpret.meaning import FieldMeaning
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program

_Key = tuple[str, tuple[int, ...], tuple[int, ...]]


class Values:
    """The store for one draw of random inputs. Operations raise DivisionByZero (draw again), or
    with ``fills`` have random elements there.

    ``ties`` are numbers that one element in eight of every tensor has: what a comparison says of
    equal numbers shows there, and > is not >=. Along the dimensions ``level`` one row in four has
    the same element everywhere: of many elements one is above 0, so relu(max(x + y)) and max(x + y)
    differ in such a row alone.

    Both sides of a comparison are multiplied by a random element and moved by another. So it is
    true of some whole numbers and not of others: in a field a count is greater than 0 wherever it
    has a reciprocal, and where(n > 0, s / n, 0) would be s / n.
    """

    def __init__(
        self,
        space: Space,
        field: Field,
        seed: int,
        ties: Sequence[float] = (),
        fills: str = "",
        level: Sequence[str] = (),
    ) -> None:
        self.space = space
        self.ties = tuple(ties)
        self.level = tuple(level)
        self.arrays: list[FieldArray] = []
        self.evaluations = 0
        self._ops = FieldOps(field, seed, fills=fills)
        self._meaning = FieldMeaning(self._ops)
        self._numbers: dict[bytes, int] = {}
        self._done: dict[_Key, int] = {}
        self._constants: dict[int, float] = {}
        self._leaves: dict[Node, int] = {}
        self._moved_by = [self._ops.random((1,) * space.rank, f"comparisons {n}") for n in range(2)]

    def shape(self, value: int) -> tuple[int, ...]:
        """Extents of a value: a loop and a tile axis per dimension."""
        return self.arrays[value].shape

    def leaf(self, node: Node) -> int:
        """A leaf: random elements, or random bits for a mask; a scalar as it is."""
        if node not in self._leaves:
            self._leaves[node] = self._fresh(node)
        return self._leaves[node]

    def _fresh(self, node: Node) -> int:
        if node.op in SCALAR_LEAVES:
            return self.scalar(node.op, str(node.attr))
        shape, name = self.space.shape(node.dims), leaf_name(node)
        if node.op != "mask":
            drawn = self._tied(self._ops.random(shape, name), name)
            level = [d for d in node.dims if d in self.level]
            return self._number(self._levelled(drawn, name, level) if level else drawn)
        # Three ones in four: few rows are masked away entirely.
        bits = [self._ops.random_bits(shape, f"{name} {part}") for part in ("first", "second")]
        return self._number(self._meaning.apply("maximum", None, bits))

    def _tied(self, array: FieldArray, name: str) -> FieldArray:
        for tie in self.ties:
            bits = [self._ops.random_bits(array.shape, f"{name} {tie} {n}") for n in range(3)]
            chosen = self._ops.mul(self._ops.mul(bits[0], bits[1]), bits[2])
            array = self._ops.where(chosen, self._meaning.const(tie), array)
        return array

    def _levelled(self, array: FieldArray, name: str, level: Sequence[str]) -> FieldArray:
        """With one row in four along ``level`` the same element throughout."""
        shape = list(array.shape)
        for axis in (axis for d in level for axis in self.space.axes[d]):
            shape[axis] = 1
        rows = self._ops.mul(
            *(self._ops.random_bits(shape, f"{name} level {part}") for part in ("rows", "of rows"))
        )
        return self._ops.where(rows, self._ops.random(shape, f"{name} level"), array)

    def scalar(self, op: str, text: str) -> int:
        """A constant by its decimal text, or the size of a dimension."""
        number = float(text) if op == "const" else float(self.space.extent(text))
        value = self._number(self._meaning.const(number).reshape((1,) * self.space.rank))
        if op == "const":
            self._constants[value] = number
        return value

    def apply(self, op: str, args: tuple[int, ...]) -> int:
        """An elementwise operator."""
        if op == "pow" and args[1] in self._constants:
            exponent = self._constants[args[1]]
            return self._once(
                op, args, (), lambda: self._meaning.power(self.arrays[args[0]], exponent)
            )
        operands = self._compared(args) if op in COMPARISONS else self._arrays(args)
        return self._once(op, args, (), lambda: self._meaning.apply(op, None, operands))

    def says_both(self, value: int) -> bool:
        """Whether a comparison is true of some elements and false of others."""
        truth = self.arrays[value].p
        return bool(truth.any()) and not bool(truth.all())

    def reduce(self, op: str, value: int, axes: Sequence[int]) -> int:
        """A sum or a maximum over axes, which stay with extent 1."""
        reduction = self._meaning.sum if op == "sum" else self._meaning.max
        return self._once(op, (value,), tuple(axes), lambda: reduction(self.arrays[value], axes))

    def contract(self, args: tuple[int, ...], axes: Sequence[int]) -> int:
        """The sum over axes of the product of two values, which is never formed."""
        left, right = sorted(args)
        return self._once(
            "matmul",
            (left, right),
            tuple(axes),
            lambda: self._meaning.contract(self.arrays[left], self.arrays[right], axes),
        )

    def orders_truly(self, constants: Sequence[float]) -> bool:
        """Whether the random order of this draw has the constants in their real order."""
        return self._ops.orders_truly(constants)

    def _compared(self, args: Sequence[int]) -> list[FieldArray]:
        arrays = self._arrays(args)
        if all(a.size == 1 for a in arrays):
            return arrays  # two constants have an order
        factor, offset = self._moved_by
        return [self._ops.add(self._ops.mul(a, factor), offset) for a in arrays]

    def _arrays(self, args: Sequence[int]) -> list[FieldArray]:
        return [self.arrays[a] for a in args]

    def _once(
        self,
        op: str,
        args: tuple[int, ...],
        axes: tuple[int, ...],
        compute: Callable[[], FieldArray],
    ) -> int:
        key = (op, args, axes)
        if key not in self._done:
            self.evaluations += 1
            self._done[key] = self._number(compute())
        return self._done[key]

    def _number(self, array: FieldArray) -> int:
        number = self._numbers.setdefault(array.fingerprint(), len(self.arrays))
        if number == len(self.arrays):
            self.arrays.append(array)
        return number


def evaluate(program: Program, values: Values) -> tuple[int, ...]:
    """The value of every node of a program, each dimension whole."""
    axes = values.space.axes
    done: list[int] = []
    for node in program.nodes:
        args = tuple(done[a] for a in node.args)
        if node.op in (*TENSOR_LEAVES, *SCALAR_LEAVES):
            done.append(values.leaf(node))
        elif node.op == "cast":
            done.append(args[0])
        elif node.op == "matmul":
            done.append(values.contract(args, [x for d in node.reduced for x in axes[d]]))
        elif node.op in ("sum", "max"):
            done.append(values.reduce(node.op, args[0], [x for d in node.reduced for x in axes[d]]))
        else:
            done.append(values.apply(node.op, args))
    return tuple(done)
