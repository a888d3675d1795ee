"""Text that is the same in Triton and in C: elementwise operators, operands, numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Emitter = Callable[..., str]

COMMON: Mapping[str, Emitter] = {
    "neg": lambda x: f"-{x}",
    "square": lambda x: f"{x} * {x}",
    # The shift of an exp is its operand; the name says that any value would do.
    "shift": lambda x: x,
    "add": lambda x, y: f"{x} + {y}",
    "sub": lambda x, y: f"{x} - {y}",
    "mul": lambda x, y: f"{x} * {y}",
    "div": lambda x, y: f"{x} / {y}",
    "lt": lambda x, y: f"{x} < {y}",
    "le": lambda x, y: f"{x} <= {y}",
    "gt": lambda x, y: f"{x} > {y}",
    "ge": lambda x, y: f"{x} >= {y}",
    "eq": lambda x, y: f"{x} == {y}",
    "ne": lambda x, y: f"{x} != {y}",
}


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
