"""Index expressions as sums of multiples, and which of them run over a whole tensor once."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from mirage_py.axioms.certificate.terms import RefusedError

# Multiples of atoms; the atom "" is 1. An atom is a dimension, "outer&inner" for a dimension that
# is cut into parts, or a quotient or a remainder.
Form = dict[str, int]
_LONGEST = 20_000
_OPS = {ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!="}
_JOINS = {ast.BitAnd: "&", ast.BitOr: "|"}


class Indices:
    """Reads text. ``parts`` maps an inner dimension to its outer one; sizes are the µGraph's."""

    def __init__(self, sizes: Mapping[str, int], parts: Mapping[str, str]) -> None:
        self.sizes, self.parts = sizes, parts
        self.dims: dict[str, tuple[str, ...]] = {d: (d,) for d in sizes} | {"": ()}
        self.dims |= {f"{outer}&{d}": (outer, d) for d, outer in parts.items()}

    def size(self, atom: str) -> int:
        """How many values an atom takes from 0 on; quotients and remainders are not followed."""
        if atom not in self.sizes and "&" not in atom:
            raise RefusedError(f"an index with {atom[:60]}")
        outer, _, inner = atom.rpartition("&")
        return self.sizes[inner] * (self.sizes[outer] if outer else 1)

    def access(self, text: str, names: Mapping[str, str]) -> tuple[str, list[Form]]:
        """The tensor and the form of each index. ``names`` are the atoms of dimensions."""
        tensor, _, rest = text.partition("[")
        items = _parsed(f"({rest[:-1]},)" if rest[:-1] else "()").elts
        return tensor, [self.form(item, names) for item in items]

    def leaf(self, op: str, text: str, names: Mapping[str, str]) -> str:
        """One name for each load, index or condition that is the same at every point."""
        if op == "mask":
            return self._named("mask ", [self._condition(_parsed(text), names)])
        if op == "index":
            return self._named("index ", [self.text(self.form(_parsed(text), names))])
        tensor, forms = self.access(text, names)
        return self._named(f"{tensor} at ", [self.text(form) for form in forms])

    def read(self, name: str) -> str:
        """A leaf of a certificate: the text of a load, or of an index or mask behind a word."""
        op, _, rest = name.partition(" ")
        names = {d: d for d in self.sizes}
        return (
            self.leaf(op, rest, names)
            if rest and op in ("mask", "index")
            else self.leaf("load", name, names)
        )

    def text(self, form: Form) -> str:
        """One text for each form."""
        found = " + ".join(f"{k}*{atom}" if atom else str(k) for atom, k in sorted(form.items()))
        self.dims[found] = tuple(dict.fromkeys(d for atom in form for d in self.dims[atom]))
        return found

    def form(self, node: Any, names: Mapping[str, str]) -> Form:
        """The multiples of an expression, with parts put together: outer * size + inner."""
        if isinstance(node, ast.Name):
            return {names[node.id]: 1}
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return {"": node.value} if node.value else {}
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return _scaled(self.form(node.operand, names), -1)
        if not isinstance(node, ast.BinOp):
            raise RefusedError("an index that is no sum of multiples")
        left, right = self.form(node.left, names), self.form(node.right, names)
        if isinstance(node.op, ast.Add):
            return self._joined(_sum(left, right))
        if isinstance(node.op, ast.Sub):
            return self._joined(_sum(left, _scaled(right, -1)))
        by = right.get("", 0)
        if list(right) not in ([""], []):
            raise RefusedError("an index times an index")
        if isinstance(node.op, ast.Mult):
            return _scaled(left, by)
        if by < 1 or not isinstance(node.op, ast.FloorDiv | ast.Mod):
            raise RefusedError(f"an index by {by}")
        text = self.text(left)
        atom = f"({text}) {'//' if isinstance(node.op, ast.FloorDiv) else '%'} {by}"
        self.dims[atom] = self.dims[text]
        return {atom: 1}

    def _joined(self, form: Form) -> Form:
        for inner, outer in self.parts.items():
            k = form.get(inner, 0)
            if k and form.get(outer, 0) == k * self.sizes[inner]:
                rest = {atom: f for atom, f in form.items() if atom not in (inner, outer)}
                form = _sum(rest, {f"{outer}&{inner}": k})
        return form

    def _condition(self, node: Any, names: Mapping[str, str]) -> str:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            return self._named("~", [self._condition(node.operand, names)])
        if isinstance(node, ast.BinOp) and type(node.op) in _JOINS:
            both = [self._condition(n, names) for n in (node.left, node.right)]
            return self._named(_JOINS[type(node.op)], both)
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            raise RefusedError("a condition that compares no indices")
        left, right, op = node.left, node.comparators[0], type(node.ops[0])
        if op in (ast.Gt, ast.GtE):
            left, right, op = right, left, ast.Lt if op is ast.Gt else ast.LtE
        form = _sum(self.form(left, names), _scaled(self.form(right, names), -1))
        return self._named(f"0 {_OPS[op]} ", [self.text(self._joined(form))])

    def _named(self, what: str, parts: Sequence[str]) -> str:
        name = f"{what}({', '.join(parts)})"
        self.dims[name] = tuple(dict.fromkeys(d for part in parts for d in self.dims[part]))
        return name


def _parsed(text: str) -> Any:
    if len(text) > _LONGEST:
        raise RefusedError("an index expression that is too long")
    return ast.parse(text.strip(), mode="eval").body


def _sum(left: Form, right: Form) -> Form:
    total = {atom: left.get(atom, 0) + right.get(atom, 0) for atom in [*left, *right]}
    return {atom: k for atom, k in total.items() if k}


def _scaled(form: Form, by: int) -> Form:
    return {atom: k * by for atom, k in form.items() if k * by}
