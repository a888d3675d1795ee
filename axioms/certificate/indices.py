"""Index expressions as sums of multiples, and which of them run over a whole tensor once."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from mirage_py.axioms.certificate.terms import RefusedError, demand

# Multiples of atoms: dimensions, and other operators on forms by their text; the atom "" is 1.
Form = dict[str, int]
Names = Mapping[str, Form]
_JOINS = {"BitAnd": "&", "BitOr": "|", "FloorDiv": "//", "Mod": "%"}
_OPS = {**_JOINS, "Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">=", "Eq": "==", "NotEq": "!="}
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
    return f"{op} {tensor}[{what}]", [*dict.fromkeys(re.findall(r"(?<![\w'])[^\W\d]\w*", what))]


def needs_of_stores(
    shape: Sequence[int], forms: Sequence[Form], sizes: Mapping[str, int], outer: Mapping[str, str]
) -> list[str]:
    """What sizes have to be for each element to be written once: along each axis the indices are
    mixed-radix numbers of dimensions of its own. All but the last dimension of an axis keep their
    sizes, which are constants of the index; but ``outer`` * size + inner is one dimension.
    """
    needs, dims = list[str](), [atom for form in forms for atom in form]
    apart = len({*dims}) == len(dims) and len(forms) == len(shape)
    demand(apart and {*dims} <= {*sizes}, "stores that meet, or have no dimensions as indices")
    for form, extent in zip(forms, shape, strict=True):
        reach, before = 1, ""
        for k, size, atom in sorted((k, sizes[atom], atom) for atom, k in form.items()):
            demand(k == reach, "stores that leave gaps or meet")
            if before and outer.get(before) != atom:
                needs.append(f"|{before}| = {sizes[before]}")
            reach, before = reach * size, atom
        demand(reach == extent, "stores that leave some of a tensor out")
    return needs


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
            return _sum({}, _form(x, names), -1)
        case ast.UnaryOp(ast.Invert(), x):
            return {f"~({_text(_form(x, names))})": 1}
        case ast.BinOp(x, op, y) | ast.Compare(x, [op], [y]):
            left, right = _form(x, names), _form(y, names)
        case _:
            raise RefusedError("an index or a mask that is none")
    if isinstance(op, ast.Add | ast.Sub):
        return _sum(left, right, 1 if isinstance(op, ast.Add) else -1)
    fits = type(op).__name__ in _OPS
    if isinstance(op, ast.Mult | ast.FloorDiv | ast.Mod):
        fits = {*right} <= {""} and (isinstance(op, ast.Mult) or right.get("", 0) > 0)
    demand(fits, "an index times or by what is no number")
    if isinstance(op, ast.Mult):
        return _sum({}, left, right.get("", 0))
    return {f"({_text(left)}) {_OPS[type(op).__name__]} ({_text(right)})": 1}


def _sum(left: Form, right: Form, times: int) -> Form:
    total = {atom: left.get(atom, 0) + times * right.get(atom, 0) for atom in [*left, *right]}
    return {atom: k for atom, k in total.items() if k}


def _text(form: Form) -> str:
    """One text for each form."""
    return " + ".join(f"{k}*{atom}" if atom else str(k) for atom, k in sorted(form.items()))
