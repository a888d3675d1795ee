"""Lark's parse tree to our syntax tree."""

from __future__ import annotations

from typing import Any

from lark import Token, v_args
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from mirage_py.frontend.spec.source import Source
from mirage_py.frontend.spec.tree import (
    Binary,
    Call,
    Compare,
    Declared,
    Definition,
    Expr,
    Name,
    Number,
    Range,
    Ref,
    Size,
    Span,
    Spec,
    Transpose,
    Unary,
)

# The signs of papers, in the spelling that the rest of the front end knows.
_PLAIN = {
    "≤": "<=", "≥": ">=", "≠": "!=", "−": "-", "×": "*", "·": "*", "~": "not", "π": "pi",
    "∞": "inf",
}  # fmt: skip


def span_of(place: Meta | Token) -> Span:
    """The stretch of text that a node or token of lark covers."""
    if isinstance(place, Meta):
        return Span(place.line, place.column, place.end_line, place.end_column)
    line, column = place.line or 1, place.column or 1
    return Span(line, column, place.end_line or line, place.end_column or column + 1)


def _plain(token: Token) -> str:
    return _PLAIN.get(str(token), str(token))


def _name(token: Token) -> Name:
    return Name(_plain(token), span_of(token))


@v_args(meta=True)
class Reader(Transformer_NonRecursive[Token, Any]):
    """One method per rule of the grammar; children come before their parents."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source

    def start(self, _meta: Meta, statements: list[Any]) -> Spec:
        sizes: list[Size] = []
        declarations: list[tuple[Declared, ...]] = []
        ranges: list[Range] = []
        definitions: list[Definition] = []
        for statement in statements:
            if isinstance(statement, Definition):
                definitions.append(statement)
            elif isinstance(statement[0], Size):
                sizes.extend(statement)
            elif isinstance(statement[0], Range):
                ranges.extend(statement)
            else:
                declarations.append(statement)
        return Spec(tuple(sizes), tuple(declarations), tuple(ranges), tuple(definitions))

    # -- statements ------------------------------------------------------------------------------

    def sizes(self, _meta: Meta, parts: list[Size]) -> tuple[Size, ...]:
        return tuple(parts)

    def size(self, _meta: Meta, parts: list[Any]) -> Size:
        name, value = parts
        return Size(str(name), None if isinstance(value, Token) else value, span_of(name))

    def declarations(self, _meta: Meta, parts: list[Declared]) -> tuple[Declared, ...]:
        return tuple(parts)

    def declared(self, _meta: Meta, parts: list[Any]) -> Declared:
        return Declared(parts[0], _name(parts[1]) if len(parts) == 2 else None)

    def ranges(self, _meta: Meta, parts: list[Range]) -> tuple[Range, ...]:
        return tuple(parts)

    def range(self, _meta: Meta, parts: list[Any]) -> Range:
        name, op, bound = parts
        return Range(str(name), _plain(op), bound, span_of(name))

    def let(self, _meta: Meta, parts: list[Any]) -> Definition:
        target, value = parts
        if isinstance(target, Token):
            span = span_of(target)
            target = Ref(str(target), (), span, span)
        return Definition(True, target, None, value)

    def equation(self, _meta: Meta, parts: list[Any]) -> Definition:
        dtype = _name(parts[1]) if len(parts) == 3 else None
        return Definition(False, parts[0], dtype, parts[-1])

    # -- expressions -----------------------------------------------------------------------------

    def ref(self, meta: Meta, parts: list[Any]) -> Ref:
        name, *indices = parts
        return Ref(str(name), tuple(indices), span_of(meta), span_of(name))

    def number(self, meta: Meta, parts: list[Token]) -> Number:
        span, text = span_of(meta), str(parts[0])
        if len(text) > 40 or float(text) == float("inf"):
            raise self._source.error(
                span,
                "this number cannot be held by a float",
                repair="use fewer digits, or 'inf' where infinity is meant",
            )
        return Number(text, span)

    def name(self, _meta: Meta, parts: list[Token]) -> Name:
        return _name(parts[0])

    def unary(self, meta: Meta, parts: list[Any]) -> Expr:
        op, operand = parts
        if op == "+":
            return operand  # type: ignore[no-any-return]
        return Unary(_plain(op), operand, span_of(meta))

    def binary(self, meta: Meta, parts: list[Any]) -> Binary:
        left, op, right = parts
        return Binary(_plain(op), left, right, span_of(meta), span_of(op))

    def compare(self, meta: Meta, parts: list[Any]) -> Compare:
        ops = tuple(_plain(op) for op in parts[1::2])
        return Compare(ops, tuple(parts[0::2]), span_of(meta))

    def transpose(self, meta: Meta, parts: list[Any]) -> Transpose:
        return Transpose(parts[0], span_of(meta))

    def arguments(self, _meta: Meta, parts: list[Any]) -> list[Any]:
        return parts

    def keyword(self, _meta: Meta, parts: list[Any]) -> tuple[Name, Expr]:
        return _name(parts[0]), parts[1]

    def call(self, meta: Meta, parts: list[Any]) -> Call:
        head, arguments = parts
        over: tuple[Expr, ...] | None = None
        if isinstance(head, Ref):
            name, name_span, over = head.name, head.name_span, head.indices
        else:
            name, name_span = str(head), span_of(head)
        keywords = tuple(a for a in arguments if isinstance(a, tuple))
        args = tuple(a for a in arguments if not isinstance(a, tuple))
        return Call(name, over, args, keywords, span_of(meta), name_span)
