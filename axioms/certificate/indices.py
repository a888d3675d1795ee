"""Index expressions as sums of multiples."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from mirage_py.axioms.certificate.terms import RefusedError, demand

# Multiples of atoms: dimensions, and other operators on forms by their text; the atom "" is 1.
Form = dict[str, int]
Names = Mapping[str, Form]
_ARITHMETIC = {"Add": "+", "Sub": "-", "Mult": "*", "FloorDiv": "//", "Mod": "%"}
_COMPARISONS = {"Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">=", "Eq": "==", "NotEq": "!="}
_SIGNS = {**_ARITHMETIC, **_COMPARISONS, "BitAnd": "&", "BitOr": "|"}
_LONGEST = 20_000


def access(op: str, text: str, names: Names) -> tuple[str, list[Form]]:
    """The tensor and the form of each index; of an index or a mask "" and its own form."""
    tensor, _, rest = text.partition("[") if op in ("load", "store") else ("", "", f"{text}]")
    demand(rest.endswith("]") and len(rest) <= _LONGEST, "an access without indices, or too long")
    items: Any = ast.parse(f"[{rest.strip()}", mode="eval").body
    return tensor, [_form(item, names) for item in items.elts]


def leaf_of(op: str, text: str, names: Names) -> tuple[str, list[str]]:
    """One name for what is the same at every point, and the dimensions of it."""
    tensor, forms = access(op, text, names)
    what = ", ".join(map(_text, forms))
    return f"{op} {tensor}[{what}]", re.findall(r"(?<![\w'])[^\W\d]\w*", what)


def added(left: Mapping[Any, Any], right: Mapping[Any, Any], times: Any) -> dict[Any, Any]:
    """A sum of multiples and some times another."""
    total = {atom: left.get(atom, 0) + times * right.get(atom, 0) for atom in [*left, *right]}
    return {atom: k for atom, k in total.items() if k}


def _form(node: Any, names: Names) -> Form:
    match node:
        case ast.Name(name):
            return names[name]
        case ast.Constant(k) if type(k) is int:
            return {"": k} if k else {}
        case ast.Subscript(ast.Name(tensor), at):
            items = at.elts if isinstance(at, ast.Tuple) else [at]
            return {f"'{tensor}'[{', '.join(_text(_form(i, names)) for i in items)}]": 1}
        case ast.UnaryOp(ast.USub(), x):
            return added({}, _form(x, names), -1)
        case ast.UnaryOp(ast.Invert(), x):
            return {f"~({_text(_form(x, names))})": 1}
        case ast.BinOp(x, op, y) | ast.Compare(x, [op], [y]):
            left, right, sign = _form(x, names), _form(y, names), _SIGNS.get(type(op).__name__)
            number = right.get("", 0) if {*right} <= {""} else None
            if sign in ("+", "-"):
                return added(left, right, 1 if sign == "+" else -1)
            if sign == "*" and number is not None:
                return added({}, left, number)
            fits = sign not in (None, "*") and (sign not in ("//", "%") or (number or 0) > 0)
            demand(fits, "an index times or by what is no number")
            return {f"({_text(left)}) {sign} ({_text(right)})": 1}
    raise RefusedError("an index or a mask that is none")


def _text(form: Form) -> str:
    """One text for each form."""
    return " + ".join(f"{k}*{atom}" if atom else str(k) for atom, k in sorted(form.items()))
