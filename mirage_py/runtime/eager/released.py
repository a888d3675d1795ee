"""The source of a function without branches, with each value dropped after its last use.

A name that is bound keeps its tensor until the function returns. Of a program in float64 at full
size all intermediates together take many times what the largest two do.
"""

from __future__ import annotations

import ast


def with_values_released(source: str) -> str:
    """A module's source in which ``run`` deletes what it has bound as soon as nothing reads it
    any more; its arguments and what it returns are left alone.
    """
    tree = ast.parse(source)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "run":
            node.body = _released(node.body)
    return ast.unparse(ast.fix_missing_locations(tree))


def _released(body: list[ast.stmt]) -> list[ast.stmt]:
    bound: set[str] = set()
    last: dict[str, int] = {}
    for number, statement in enumerate(body):
        last |= {n.id: number for n in ast.walk(statement) if isinstance(n, ast.Name)}
        if isinstance(statement, ast.Assign):
            bound |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
    released: list[ast.stmt] = []
    for number, statement in enumerate(body):
        released.append(statement)
        over = sorted(name for name in bound if last[name] == number)
        if over and not isinstance(statement, ast.Return):
            released.append(ast.Delete([ast.Name(name, ast.Del()) for name in over]))
    return released
