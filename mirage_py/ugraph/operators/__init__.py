"""The operators, each defined once. Import names from here."""

from __future__ import annotations

from mirage_py.ugraph.operators import elementwise, structural
from mirage_py.ugraph.operators.base import (
    CONTRACT,
    EFFECT,
    ELEMENTWISE,
    LEAF,
    REDUCE,
    STATE,
    Calls,
    Operator,
    all_operators,
    named,
    operator,
)

__all__ = [
    "CONTRACT",
    "EFFECT",
    "ELEMENTWISE",
    "LEAF",
    "REDUCE",
    "STATE",
    "Calls",
    "Operator",
    "all_operators",
    "elementwise",
    "named",
    "operator",
    "structural",
]
