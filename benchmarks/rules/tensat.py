"""tensat's rule files: equations as texts, one after the other or one a line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks.rules.foreign import Foreign, OtherOperatorError, applied, convolution, given, piece
from mirage_py.axioms.substitutions.expression import UNIT, Expr

_TOKENS = re.compile(r"==|=>|\??[A-Za-z_]\w*|-?\d+|[(),]")
_SCALAR = ("input_20", "input_21", "input_22")
Tree = str | tuple["Tree", ...]


def equations(path: Path) -> Iterator[tuple[Tree, Tree]]:
    """Both sides of each equation, as trees: ``f(x, y)`` and ``(f x y)`` are one."""
    tokens = _TOKENS.findall(path.read_text(encoding="utf-8"))
    lisp = "=>" in tokens
    tokens = [t for t in tokens if t != ","]
    at = 0

    def tree() -> Tree:
        nonlocal at
        token = tokens[at]
        at += 1
        if lisp and token == "(":
            items = list[Tree]()
            while tokens[at] != ")":
                items.append(tree())
            at += 1
            return tuple(items)
        if not lisp and at < len(tokens) and tokens[at] == "(":
            at += 1
            items = [token]
            while tokens[at] != ")":
                items.append(tree())
            at += 1
            return tuple(items)
        return str(token).lstrip("?")

    while at < len(tokens):
        left = tree()
        at += 1
        yield left, tree()


def read(path: Path, *, outputs: int = 1) -> list[Foreign]:
    """The rules of a file; so many equations after one another are one rule."""
    found, all_sides = [], list(equations(path))
    for begin in range(0, len(all_sides), outputs):
        name = f"{path.stem} {begin // outputs}"
        some = all_sides[begin : begin + outputs]
        try:
            sides = [tuple(_made(side[n]) for side in some) for n in (0, 1)]
            found.append(Foreign(name, *sides))
        except OtherOperatorError as error:
            found.append(Foreign(name, other=str(error)))
    return found


def _made(tree: Tree) -> Expr:
    if isinstance(tree, str):
        if not tree.startswith("input"):
            raise OtherOperatorError(tree)
        return given(tree, scalar=tree in _SCALAR)
    op, *items = tree
    match op:
        case "matmul":
            return applied("matmul", *map(_made, items[-2:]))
        case "ewadd" | "ewmul" | "smul":
            name = "add" if op == "ewadd" else "mul"
            return applied(name, *map(_made, items))
        case "relu" | "transpose":
            return applied(str(op), _made(items[0]))
        case "concat":
            return applied("concat", *map(_made, items[-2:]), attrs=(_number(items[0]),))
        case "split_0" | "split_1":
            of = items if len(items) == 2 else items[0][1:]
            return piece(_number(of[0]), int(str(op)[-1]), _made(of[1]))
        case "conv2d":
            fits = [str(t) for t in items[:3]] == ["1", "1", "0"]
            return convolution(*map(_made, items[4:]), relu=items[3] == "2", unit=fits)
        case "enlarge":
            return applied("enlarge", _made(items[-1]), attrs=("",))
        case "poolmax" | "poolavg":
            kind = "max_pool" if op == "poolmax" else "avg_pool"
            return applied(kind, _made(items[-1]), attrs=(UNIT, "3"))
    raise OtherOperatorError(str(op))


def _number(tree: Tree) -> int:
    return int(str(tree))
