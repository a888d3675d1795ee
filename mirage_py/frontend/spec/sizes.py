"""Sizes: whole numbers made of earlier ones, or bound by the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirage_py.arguments import shown
from mirage_py.errors import InputError
from mirage_py.frontend.spec.source import Source, did_you_mean
from mirage_py.frontend.spec.tree import Binary, Expr, Name, Number, Size, Unary

# Far above any tensor that fits a machine, far below where arithmetic on sizes gets slow.
MAX_SIZE = 2**40


def resolve(source: Source, written: Sequence[Size], bound: Mapping[str, int]) -> dict[str, int]:
    """Every size with its number; ``bound`` wins over what is written.

    Raises:
        InputError: ``bound`` names no size of the spec, or gives no size.
        SpecError: a size is left open, is no whole number, or is below 1.
    """
    _check_bound(source, [size.name for size in written], bound)
    sizes: dict[str, int] = {}
    for size in written:
        if size.name in bound:
            sizes[size.name] = bound[size.name]
            continue
        if size.value is None:
            raise source.error(
                size.span,
                f"size '{size.name}' has no number",
                why=f"the spec leaves it open with {size.name} = ?",
                repair=f"--size {size.name}=16 on the command line, "
                f"sizes={{'{size.name}': 16}} for parse, or write the number here",
            )
        value = integer(source, sizes, size.value)
        if value < 1:
            raise source.error(
                size.value.span,
                f"size '{size.name}' is {shown(value)}",
                why="an empty tensor needs no kernel",
                repair="use 1 or more",
            )
        sizes[size.name] = value
    return sizes


def _check_bound(source: Source, known: Sequence[str], bound: Mapping[str, int]) -> None:
    for name, value in bound.items():
        if name not in known:
            raise InputError(
                f"the spec has no size '{name}'",
                where=source.file,
                why=f"its sizes are {', '.join(known)}" if known else "it names no sizes",
                repair=did_you_mean(name, known, f"add {name} = ? to the spec, or leave it out"),
            )
        given: object = value  # what a caller without type checks may pass
        is_whole = isinstance(given, int) and not isinstance(given, bool)
        if not is_whole or not 1 <= value <= MAX_SIZE:
            raise InputError(
                f"size '{name}' cannot be {shown(value)}",
                where=source.file,
                repair=f"give a whole number from 1 to {MAX_SIZE}",
            )


def integer(source: Source, sizes: Mapping[str, int], expr: Expr) -> int:
    """The value of an expression over sizes.

    Raises:
        SpecError: it is not one, divides unevenly or grows out of bounds.
    """
    value = _integer(source, sizes, expr)
    if abs(value) > MAX_SIZE:
        raise source.error(
            expr.span, f"this size is {shown(value)}", repair=f"stay below {MAX_SIZE}"
        )
    return value


def _integer(source: Source, sizes: Mapping[str, int], expr: Expr) -> int:
    match expr:
        case Number(is_integer=True, text=text):
            return int(text)
        case Name(name=name) if name in sizes:
            return sizes[name]
        case Name(name=name, span=span):
            raise source.error(
                span,
                f"unknown size '{name}'",
                repair=did_you_mean(name, sizes, f"define it on a line before, as in {name} = 128"),
            )
        case Unary(op="-", operand=operand):
            return -integer(source, sizes, operand)
        case Binary(op=op, left=left, right=right) if op in ("+", "-", "*", "/", "//", "%"):
            operands = integer(source, sizes, left), integer(source, sizes, right)
            return _arithmetic(source, expr, *operands)
    raise source.error(
        expr.span,
        "a size must be a whole number",
        why="sizes are made of whole numbers, earlier sizes and + - * / // %",
        repair="write let before the name for a value that is not a size, and an index list after "
        "it, as in Y[b] = ..., for an output",
    )


def _arithmetic(source: Source, expr: Binary, left: int, right: int) -> int:
    if expr.op == "+":
        return left + right
    if expr.op == "-":
        return left - right
    if expr.op == "*":
        return left * right
    if right == 0:
        raise source.error(
            expr.right.span, "division by zero", repair="divide by a number other than 0"
        )
    if expr.op == "/" and left % right:
        raise source.error(
            expr.span, f"{left} / {right} is not a whole number", repair="use // to round down"
        )
    return left % right if expr.op == "%" else left // right
