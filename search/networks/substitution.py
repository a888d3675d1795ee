"""A substitution: a pattern of operators, and what else its roots can be computed by.

Those of proved rules are in ``proved_rules.py``, those by hand in ``folding.py`` and
``siblings.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mirage_py.networks.operators.operator import operator
from mirage_py.networks.operators.tensor_type import TensorType
from mirage_py.search.networks.egraph import EGraph, ENode, Match, Pattern

# Of substitutions that are written by hand: a law, without a certificate of its own.
BY_HAND = "by hand; each use is tested"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a substitution matches, and a way to add operators there."""

    graph: EGraph
    match: Match
    pattern: Pattern

    def type(self, name: str) -> TensorType:
        """The type of a named value."""
        return self.graph.type(self.match.classes[name])

    def attributes(self, node: int) -> dict[str, Any]:
        """The attributes of a node of the pattern."""
        return dict(self.match.attributes[node])

    def operator(self, node: int) -> str:
        """The name of the operator of a node of the pattern."""
        return self.pattern[node].operator

    def value(self, name: str) -> int:
        """The class of a named value."""
        return self.match.classes[name]

    def add(self, name: str, operands: Sequence[int], **attributes: Any) -> tuple[int, ...]:
        """The results of an operator; InputError where it has no shape."""
        return self.graph.results(ENode(name, operator(name).normal(attributes), tuple(operands)))


@dataclass(frozen=True, slots=True)
class Substitution:
    """``make`` computes the ``roots`` of the pattern otherwise, or gives None where a condition on
    shapes or attributes does not hold; ``why`` says why both sides are equal, and ``proof`` names
    the proof. ``grows`` says that it makes more operators than it matches, but for weights;
    ``merges`` that it makes one operator of several, which is done once, as siblings are.
    """

    name: str
    pattern: Pattern
    roots: tuple[str, ...]
    make: Callable[[Place], Sequence[int] | None]
    why: str
    proof: str
    grows: bool = False
    merges: bool = False
