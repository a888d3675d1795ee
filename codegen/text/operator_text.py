"""Text that is the same in Triton and in C: elementwise operators, operands, numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mirage_py.ugraph.operators import all_operators

Emitter = Callable[..., str]


def emitters(language: str) -> Mapping[str, Emitter]:
    """The elementwise operators that are one expression in ``language``, triton or c."""
    texts = {row.name: getattr(row, language) or row.text for row in all_operators()}
    return {name: text.format for name, text in texts.items() if text}


def number(text: str) -> float | None:
    """The value of a literal of either language; None for anything else."""
    try:
        return float(text.strip("()").removesuffix("f"))
    except ValueError:
        return None


def atom(text: str) -> str:
    """``text`` in parentheses unless it is one name, number, call or subscript."""
    depth = 0
    for position, character in enumerate(text):
        depth += character in "(["
        depth -= character in ")]"
        if depth == 0 and (character == " " or (character in "-~!" and position == 0)):
            return f"({text})"
    return text
