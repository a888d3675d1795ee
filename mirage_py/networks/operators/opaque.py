"""An opaque operator: any operator of a network that is not known, as a node that stays as it is.

Two of them are equal if their keys and operands are; nothing else is known of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mirage_py.errors import UnsupportedError
from mirage_py.networks.operators.operator import Attribute, Attributes, Operator, register
from mirage_py.networks.operators.tensor_type import TensorType
from mirage_py.ugraph.ir.dtypes import dtype


def encoded(types: Sequence[TensorType]) -> str:
    """Types of results as the text of an attribute."""
    return "; ".join(f"{t.dtype} {' '.join(map(str, t.shape))}".strip() for t in types)


def _decoded(text: str) -> list[TensorType]:
    found = []
    for part in text.split("; "):
        name, *sizes = part.split()
        found.append(TensorType(tuple(map(int, sizes)), dtype(name)))
    return found


def _no_meaning(*_: Any) -> Any:
    raise UnsupportedError(
        "an opaque operator has no meaning of its own",
        why="it stands for an operator of a model that the graph level does not know",
    )


def _types(_: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
    return _decoded(attributes["types"])


OPAQUE = register(
    Operator(
        "opaque",
        -1,
        _types,
        _no_meaning,
        _no_meaning,
        _no_meaning,
        (Attribute("key", str), Attribute("types", str)),
        about="An operator that is left as it is.",
        has_meaning=False,
    )
)
