"""The operator class of networks, and the registry of all operators.

An operator is one row: its attributes, its shape rule, and its meaning in three domains: tensors of
torch, arrays over a finite field, and nodes of a Program. The third is what the field test, the
prover and certificates read, so whatever is proved of Programs is proved of networks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from mirage_py.errors import InputError
from mirage_py.networks.operators.tensor_type import TensorType
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.named_array import NamedArray
from mirage_py.ugraph.field import FieldArray, FieldOps
from mirage_py.ugraph.operators.registry import Registry

AttributeValue: TypeAlias = int | float | str | tuple[int, ...]
Attributes: TypeAlias = Mapping[str, Any]

ShapeRule: TypeAlias = Callable[[Sequence[TensorType], Attributes], Sequence[TensorType]]
# Operands are tensors of torch, which is not imported here.
TorchMeaning: TypeAlias = Callable[[Sequence[Any], Attributes], Sequence[Any]]
OverField: TypeAlias = Callable[[FieldOps, Sequence[FieldArray], Attributes], Sequence[FieldArray]]
OverProgram: TypeAlias = Callable[
    [ProgramBuilder, Sequence[NamedArray], Attributes], Sequence[NamedArray]
]


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of an operator. ``kind`` is int, float, str or tuple (of whole numbers).

    Without ``default`` it has to be given. A whole number in the place of a tuple of known
    ``length`` stands for so many equal ones.
    """

    name: str
    kind: type
    default: AttributeValue | None = None
    length: int = 0

    def normal(self, operator: str, value: object) -> AttributeValue:
        """The value in the one form that graphs store, or InputError."""
        if self.kind is tuple:
            if isinstance(value, int) and self.length:
                return (int(value),) * self.length
            if isinstance(value, list | tuple) and all(isinstance(n, int) for n in value):
                numbers = tuple(int(n) for n in value)
                if self.length in (0, len(numbers)):
                    return numbers
        elif self.kind is float and isinstance(value, int | float):
            return float(value)
        elif self.kind is int and isinstance(value, int):
            return int(value)
        elif self.kind is str and isinstance(value, str):
            return value
        wanted = {int: "a whole number", float: "a number", str: "a text"}
        count = f"{self.length} " if self.length else ""
        raise InputError(
            f"{operator} has {self.name} = {value!r}",
            repair=f"give {wanted.get(self.kind, f'{count}whole numbers')}",
        )


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of networks.

    ``arity`` is the number of operands, or -1 for one or more. ``shapes`` gives the types of the
    results, or refuses with an InputError that says why. ``linear`` lists groups of operands: the
    operator is a linear map of each group while the others are held fixed, and the groups together
    hold every operand; it is empty where the operator is not linear at all. A matmul has
    ``((0,), (1,))``, a concatenation of any number one group, written ``((-1,),)``. One without
    meaning stands for something that graphs are not about.
    """

    name: str
    arity: int
    shapes: ShapeRule
    over_torch: TorchMeaning
    over_field: OverField
    over_program: OverProgram
    attributes: tuple[Attribute, ...] = ()
    linear: tuple[tuple[int, ...], ...] = ()
    about: str = ""
    has_meaning: bool = True

    def normal(self, given: Attributes) -> tuple[tuple[str, AttributeValue], ...]:
        """All attributes in the row's order, defaults filled in; InputError for a wrong one."""
        unknown = [name for name in given if all(a.name != name for a in self.attributes)]
        if unknown:
            known = ", ".join(a.name for a in self.attributes) or "none"
            raise InputError(
                f"{self.name} has no attribute {', '.join(unknown)}", repair=f"it has {known}"
            )
        found: list[tuple[str, AttributeValue]] = []
        for attribute in self.attributes:
            value = given.get(attribute.name, attribute.default)
            if value is None:
                raise InputError(f"{self.name} needs the attribute {attribute.name}")
            found.append((attribute.name, attribute.normal(self.name, value)))
        return tuple(found)

    def result_types(
        self, operands: Sequence[TensorType], attributes: Attributes
    ) -> tuple[TensorType, ...]:
        """The shape rule, after the number of operands is checked."""
        if len(operands) != self.arity and not (self.arity < 0 and operands):
            wanted = "one operand or more" if self.arity < 0 else f"{self.arity} operands"
            raise InputError(f"{self.name} takes {wanted}, not {len(operands)}")
        return tuple(self.shapes(operands, attributes))


_REGISTRY = Registry[Operator](" of networks")
register, operator = _REGISTRY.register, _REGISTRY.row


def all_operators() -> tuple[Operator, ...]:
    """Every registered operator that has a meaning, in the order of registration."""
    return tuple(row for row in _REGISTRY.rows() if row.has_meaning)


def refused(operator: str, operands: Sequence[TensorType], why: str) -> InputError:
    """The error of a shape rule."""
    listed = ", ".join(map(str, operands))
    return InputError(f"{operator} of {listed} has no shape", why=why)
