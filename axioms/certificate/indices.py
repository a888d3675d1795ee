"""Index expressions as sums of multiples, and which of them run over a whole tensor once."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from mirage_py.axioms.certificate.terms import demand

# Multiples of atoms, which are dimensions, quotients and remainders; the atom "" is 1.
Form = dict[str, int]
Names = Mapping[str, Form]
_OPS = {ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!="}
_FROM_OTHER_SIDE = {ast.Gt: ast.Lt, ast.GtE: ast.LtE}
_JOINS = {ast.BitAnd: "&", ast.BitOr: "|", ast.FloorDiv: "//", ast.Mod: "%"}
_LONGEST = 20_000


def access(text: str, names: Names) -> tuple[str, list[Form]]:
    """The tensor and the form of each index. ``names`` are what dimensions stand for."""
    tensor, _, rest = text.partition("[")
    demand(rest.endswith("]"), f"{text} is no access")
    items = _parsed(f"({rest[:-1]},)").elts if rest[:-1].strip() else []
    return tensor, [_form(item, names) for item in items]


def leaf_of(op: str, text: str, names: Names) -> tuple[str, list[str]]:
    """One name for what is the same at every point, and the dimensions of it."""
    tensor, what = "", ""
    if op == "load":
        tensor, forms = access(text, names)
        what = ", ".join(map(_text, forms))
    elif op == "index":
        what = _text(_form(_parsed(text), names))
    elif op == "mask":
        what = _condition(_parsed(text), names)
    return f"{op} {tensor}[{what}]", [*dict.fromkeys(re.findall(r"[^\W\d]\w*", what))]


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
    """The multiples of an expression."""
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return {"": node.value} if node.value else {}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _sum({}, _form(node.operand, names), -1)
    demand(isinstance(node, ast.BinOp), "an index that is no sum of multiples")
    left, right = _form(node.left, names), _form(node.right, names)
    if isinstance(node.op, ast.Add | ast.Sub):
        return _sum(left, right, 1 if isinstance(node.op, ast.Add) else -1)
    by = right.get("", 0)
    if isinstance(node.op, ast.Mult) and {*right} <= {""}:
        return _sum({}, left, by)
    fits = isinstance(node.op, ast.FloorDiv | ast.Mod) and {*right} == {""} and by > 0
    demand(fits, "an index times or by what is no number")
    return {f"({_text(left)}) {_JOINS[type(node.op)]} {by}": 1}


def _sum(left: Form, right: Form, times: int) -> Form:
    total = {atom: left.get(atom, 0) + times * right.get(atom, 0) for atom in [*left, *right]}
    return {atom: k for atom, k in total.items() if k}


def _text(form: Form) -> str:
    """One text for each form."""
    return " + ".join(f"{k}*{atom}" if atom else str(k) for atom, k in sorted(form.items()))


def _condition(node: Any, names: Names) -> str:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return f"~({_condition(node.operand, names)})"
    if isinstance(node, ast.BinOp):
        left, right = _condition(node.left, names), _condition(node.right, names)
        return f"({left}) {_JOINS[type(node.op)]} ({right})"
    demand(isinstance(node, ast.Compare) and len(node.ops) == 1, "a mask that compares no indices")
    sides, op = [_form(side, names) for side in (node.left, *node.comparators)], type(node.ops[0])
    if op in _FROM_OTHER_SIDE:
        sides, op = sides[::-1], _FROM_OTHER_SIDE[op]
    return f"0 {_OPS[op]} {_text(_sum(sides[1], sides[0], -1))}"


def _parsed(text: str) -> Any:
    demand(len(text) <= _LONGEST, "an index expression that is too long")
    return ast.parse(text.strip(), mode="eval").body
