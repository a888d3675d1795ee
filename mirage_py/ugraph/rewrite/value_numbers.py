"""Value numbering: equal numbers mean equal formulas.

A value that several loops or kernels compute again has one number. Differences that do not change a
value are ignored: casts, the order of commuting operands, how a product is associated and its
constants, factors inside or outside of a sum that they do not vary along, sums of sums, and that a
sum was accumulated over the iterations of a loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite

from mirage_py.ugraph.ir.node import REDUCING, Attr, Node
from mirage_py.ugraph.operators import STATE, operator

_Dims = tuple[str, ...]
_Formula = tuple[str, object, tuple[int, ...]]

_ONE = Fraction(1)
# Operators whose result is a product of powers of their operands.
_MULTIPLIES = frozenset(("mul", "div", "square", "neg"))


@dataclass(frozen=True, slots=True)
class _Product:
    """A constant times powers of values that are no products."""

    constant: Fraction
    powers: Mapping[int, int]

    def times(self, other: _Product, exponent: int = 1) -> _Product:
        """This product times another one to the power 1 or -1."""
        powers = dict(self.powers)
        for atom, power in other.powers.items():
            powers[atom] = powers.get(atom, 0) + exponent * power
        constant = self.constant
        if other.constant != _ONE:
            constant = constant * other.constant if exponent == 1 else constant / other.constant
        return _Product(constant, powers)


class ValueNumbers:
    """Gives each formula the next number."""

    def __init__(self) -> None:
        self._numbers: dict[_Formula, int] = {}
        self._dims: list[_Dims] = []
        self._products: dict[int, _Product] = {}
        # Number -> the dimensions and the operand of a sum.
        self._sums: dict[int, tuple[_Dims, int]] = {}
        # What one iteration sees of a reduction -> the whole of it.
        self._whole: dict[int, int] = {}

    def copy(self) -> ValueNumbers:
        """A table that knows the same formulas, to go on with."""
        other = ValueNumbers()
        other._numbers.update(self._numbers)
        other._dims.extend(self._dims)
        other._products.update(self._products)
        other._sums.update(self._sums)
        other._whole.update(self._whole)
        return other

    def of(
        self,
        nodes: Sequence[Node],
        *,
        loops: Mapping[int, str] | None = None,
        known: Mapping[int, int] | None = None,
    ) -> list[int]:
        """The number of each node.

        ``loops`` gives nodes in a loop its dimension; ``known`` gives loads of intermediates the
        number of what was stored.
        """
        numbers: list[int] = []
        for position, node in enumerate(nodes):
            if known and position in known:
                numbers.append(known[position])
                continue
            args = tuple(numbers[a] for a in node.args)
            numbers.append(self._number(node, args, (loops or {}).get(position)))
        return numbers

    def _number(self, node: Node, args: tuple[int, ...], loop: str | None) -> int:
        if node.op == "cast":
            return args[0]
        product = self._multiplied(node, args)
        if product is not None:
            return self._of_product(product)
        if operator(node.op).kind == STATE:
            return self._gathered(node, args, loop)
        if node.op in REDUCING:
            whole = self._reduced(node, args)
            if loop not in node.reduced:
                return whole
            part = self._named("part", None, (whole,), node.dims)
            self._whole[part] = whole
            return part
        commutes = operator(node.op).commutative
        return self._named(node.op, node.attr, tuple(sorted(args)) if commutes else args, node.dims)

    def _multiplied(self, node: Node, args: tuple[int, ...]) -> _Product | None:
        """The value as a product, if it is one."""
        if node.op == "const" and isinstance(node.attr, float) and isfinite(node.attr):
            return _Product(Fraction(repr(node.attr)), {})
        if node.op not in _MULTIPLIES:
            return None
        first, last = self._product(args[0]), self._product(args[-1])
        if node.op == "mul":
            return first.times(last)
        if node.op == "div":
            return first.times(last, -1) if last.constant else None
        if node.op == "square":
            return first.times(first)
        return _Product(-first.constant, first.powers)

    def _reduced(self, node: Node, args: tuple[int, ...]) -> int:
        if node.op == "max":
            return self._named("max", tuple(sorted(node.reduced)), args, node.dims)
        product = self._product(args[0])
        if node.op == "matmul":
            product = product.times(self._product(args[1]))
        inside: dict[int, int] = {}
        outside: dict[int, int] = {}
        for atom, power in product.powers.items():
            varies = any(d in node.reduced for d in self._dims[atom])
            (inside if varies else outside)[atom] = power
        value = self._of_product(_Product(_ONE, inside))
        dims = tuple(sorted(node.reduced))
        if value in self._sums:
            inner, value = self._sums[value]
            dims = tuple(sorted((*dims, *inner)))
        kept = tuple(d for d in self._dims[value] if d not in dims)
        number = self._named("sum", dims, (value,), kept)
        self._sums[number] = dims, value
        return self._of_product(_Product(product.constant, outside).times(self._product(number)))

    def _gathered(self, node: Node, args: tuple[int, ...], loop: str | None) -> int:
        """An accumulator: the whole of a reduction, times what does not change in the loop."""
        product = self._product(args[0])
        parts = [atom for atom in product.powers if atom in self._whole]
        others = {atom: power for atom, power in product.powers.items() if atom not in parts}
        varies = any(loop in self._dims[atom] for atom in others)
        if len(parts) != 1 or product.powers[parts[0]] != 1 or varies or node.op == "accum_max":
            if args[0] in self._whole:
                return self._whole[args[0]]
            return self._named(node.op, node.attr, args, node.dims)
        whole = self._product(self._whole[parts[0]])
        return self._of_product(_Product(product.constant, others).times(whole))

    def _product(self, number: int) -> _Product:
        return self._products.get(number) or _Product(_ONE, {number: 1})

    def _of_product(self, product: _Product) -> int:
        powers = tuple(sorted((atom, power) for atom, power in product.powers.items() if power))
        if product.constant == _ONE and len(powers) == 1 and powers[0][1] == 1:
            return powers[0][0]
        atoms = tuple(atom for atom, _ in powers)
        attr = (product.constant, tuple(power for _, power in powers))
        dims = dict.fromkeys(d for atom in atoms for d in self._dims[atom])
        number = self._named("product", attr, atoms, dims)
        self._products[number] = _Product(product.constant, dict(powers))
        return number

    def _named(
        self, op: str, attr: Attr | object, args: tuple[int, ...], dims: Iterable[str]
    ) -> int:
        number = self._numbers.setdefault((op, attr, args), len(self._numbers))
        if number == len(self._dims):
            self._dims.append(tuple(dims))
        return number
