"""C text of index expressions, predicates, numbers and names."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan

from mirage_py.codegen.text.operator_text import atom
from mirage_py.ugraph.ir.index import IndexExpr, Predicate

LINE = 100

# Element types that the back end knows.
C_TYPES = {
    "f32": "float",
    "f16": "__half",
    "bf16": "__nv_bfloat16",
    "f8e4m3": "unsigned char",
    "i64": "long long",
    "i32": "int",
    "i16": "short",
    "i8": "signed char",
    "u8": "unsigned char",
    "bool": "bool",
}

_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_SYMBOL = {"mul": "*", "floordiv": "/", "mod": "%"}


def index_text(expr: IndexExpr, names: Mapping[str, str]) -> str:
    """An index expression; divisions round towards zero, which for positions is down. Elements of
    tensors are among the ``names``, by their own text.
    """
    if expr.op == "dim":
        return names[expr.name]
    if expr.op == "const":
        return str(expr.value)
    if expr.op == "data":
        return names[str(expr)]
    left = index_text(expr.args[0], names)
    if expr.op == "mod" and expr.tensors():  # what is data may be negative
        return f"(({atom(left)} % {expr.value} + {expr.value}) % {expr.value})"
    if expr.op == "floordiv" and expr.tensors():
        rest = index_text(expr.args[0] % expr.value, names)
        return f"({atom(left)} - {rest}) / {expr.value}"
    if expr.op == "add":
        other = expr.args[1]
        if other.op == "const" and other.value < 0:
            return f"{left} - {-other.value}"
        if left == "0":
            return index_text(other, names)
        right = index_text(other, names)
        return left if right == "0" else f"{left} + {right}"
    if left == "0":
        return "0"
    return f"{atom(left)} {_SYMBOL[expr.op]} {expr.value}"


def predicate_text(predicate: Predicate, names: Mapping[str, str]) -> str:
    """A condition, fully parenthesised."""
    if predicate.exprs:
        left, right = (index_text(e, names) for e in predicate.exprs)
        return f"({left} {_COMPARE[predicate.op]} {right})"
    parts = [predicate_text(a, names) for a in predicate.args]
    if predicate.op == "not":
        return f"(!{parts[0]})"
    return f"({parts[0]} {'&&' if predicate.op == 'and' else '||'} {parts[1]})"


def float_text(value: float) -> str:
    """A literal of type float; one that is beyond its range is infinite."""
    if isnan(value):
        return "__int_as_float(0x7fc00000)"
    if abs(value) > 3.4028235677973366e38:
        return f"__int_as_float({'0x7f800000' if value > 0 else '(int)0xff800000u'})"
    return f"{value!r}f"


def added(*parts: str) -> str:
    """A sum of texts, without those that are zero."""
    kept = [p for p in parts if p and p != "0"]
    return " + ".join(kept) or "0"


def weighted(*terms: tuple[str, int]) -> str:
    """The text of a sum of products with constants."""
    constant = sum(int(t) * f for t, f in terms if t.isdigit())
    parts = []
    for text, factor in terms:
        if not text.isdigit():
            grouped = f"({text})" if " + " in text and factor != 1 else text
            parts.append(grouped if factor == 1 else f"{factor} * {grouped}")
    if constant or not parts:
        parts.append(str(constant))
    return " + ".join(parts)


def wrapped(text: str, width: int) -> list[str]:
    """A statement as lines of at most ``width`` characters where its spaces permit; what follows
    ``//`` stays a comment.
    """
    lines = []
    while len(text) > width:
        cut = text.rfind(" ", 8, width)
        if cut < 0:
            break
        lines.append(text[:cut])
        text = ("// " if "//" in text[:cut] else "    ") + text[cut + 1 :]
    return [*lines, text]
