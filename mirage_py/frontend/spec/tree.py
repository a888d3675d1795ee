"""The syntax tree of a spec: what was written, with the place of every part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the text; lines and columns count from 1, ``end_column`` is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Number:
    """A literal; ``text`` tells 2 from 2.0, for only the first may stand in an index."""

    text: str
    span: Span

    @property
    def is_integer(self) -> bool:
        """Whether it is written as a whole number."""
        return self.text.isdigit()


@dataclass(frozen=True, slots=True)
class Name:
    """A size, an index, a constant, or a tensor written without indices."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor at indices: ``X[b, h // 4]``. ``span`` covers all of it, ``name_span`` the name."""

    name: str
    indices: tuple[Expr, ...]
    span: Span
    name_span: Span


@dataclass(frozen=True, slots=True)
class Unary:
    """``op`` is ``-`` or ``not``."""

    op: str
    operand: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Binary:
    """``op`` is one of + - * / // % ^ @ & |; ``op_span`` is the sign between the operands."""

    op: str
    left: Expr
    right: Expr
    span: Span
    op_span: Span


@dataclass(frozen=True, slots=True)
class Compare:
    """A chain: ``q - 1024 < s <= q`` has two operators and three operands."""

    ops: tuple[str, ...]
    operands: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Transpose:
    """``A'`` or ``A.T``: the last two axes exchanged."""

    operand: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Call:
    """``name[over](args, key=value)``; ``over`` is None where there are no brackets."""

    name: str
    over: tuple[Expr, ...] | None
    args: tuple[Expr, ...]
    keywords: tuple[tuple[Name, Expr], ...]
    span: Span
    name_span: Span


Expr = Number | Name | Ref | Unary | Binary | Compare | Transpose | Call


@dataclass(frozen=True, slots=True)
class Size:
    """``D = 4096``; ``value`` is None for ``D = ?``."""

    name: str
    value: Expr | None
    span: Span


@dataclass(frozen=True, slots=True)
class Declared:
    """One tensor of a declaration. ``dtype`` is None where the type stands further to the right."""

    tensor: Ref
    dtype: Name | None


@dataclass(frozen=True, slots=True)
class Range:
    """``index h < 32``."""

    name: str
    op: str
    bound: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Definition:
    """``let t[b] = ...`` or ``Y[b, n] : bf16 = ...``."""

    is_let: bool
    target: Ref
    dtype: Name | None
    value: Expr


@dataclass(frozen=True, slots=True)
class Spec:
    """All statements, by kind, each kind in the order of the text."""

    sizes: tuple[Size, ...]
    declarations: tuple[tuple[Declared, ...], ...]
    ranges: tuple[Range, ...]
    definitions: tuple[Definition, ...]


def children(expr: Expr) -> tuple[Expr, ...]:
    """The parts of an expression, in the order of the text."""
    match expr:
        case Ref(indices=indices):
            return indices
        case Unary(operand=operand) | Transpose(operand=operand):
            return (operand,)
        case Binary(left=left, right=right):
            return (left, right)
        case Compare(operands=operands):
            return operands
        case Call(over=over, args=args, keywords=keywords):
            return (*(over or ()), *args, *(value for _, value in keywords))
    return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all parts of it, from the left."""
    todo = [expr]
    while todo:
        node = todo.pop()
        yield node
        todo.extend(reversed(children(node)))
