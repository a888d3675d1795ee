"""Mutants as substitutions of the graph level: what a product or convolution may be instead.

They are found, corrected and verified for the sizes at hand, so their proof is the field test. What
a mutant is made of is not mutated again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from mirage_py.networks.ir.builder import graph_of
from mirage_py.networks.ir.graph import INPUTS, Graph, Value
from mirage_py.networks.operators import operator, products
from mirage_py.networks.operators.tensor_type import TensorType
from mirage_py.search.networks.egraph import PatternNode
from mirage_py.search.networks.substitution import Place, Substitution
from mirage_py.search.partial.mutations import mutations

_OPERATORS = ("conv1d", "conv2d", "conv3d", "bmm")
_WHY = "the field test found the corrected mutant equal in every box of its result"


class _Mutants:
    """The mutants of each operator at its sizes, found once; those inside of mutants have none."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, tuple[Graph, ...]] = {}
        self._inside: dict[str, None] = {}

    def of(self, graph: Graph) -> tuple[Graph, ...]:
        if graph.digest in self._inside:
            return ()
        if graph.digest not in self._known:
            found = tuple(m.graph for m in mutations(graph, most=self._most))
            self._known[graph.digest] = found
            for mutant in found:
                for node in mutant.nodes:
                    if operator(node.operator).linear == products.LINEAR:
                        types = [mutant.type_of(v) for v in node.inputs]
                        self._inside[_alone(node.operator, types, node.values).digest] = None
        return self._known[graph.digest]


def mutants(most: int = 3) -> tuple[Substitution, ...]:
    """Up to so many mutants of each convolution and batched product of a network."""
    known = _Mutants(most)
    return tuple(
        Substitution(
            f"mutant {number + 1} of {name}",
            (PatternNode(name, ("x", "w"), ("y",)),),
            ("y",),
            partial(_replaced, known, number),
            _WHY,
            "field test",
        )
        for name in _OPERATORS
        for number in range(most)
    )


def _replaced(known: _Mutants, number: int, place: Place) -> Sequence[int] | None:
    types = [place.type("x"), place.type("w")]
    found = known.of(_alone(place.operator(0), types, place.attributes(0)))
    if number >= len(found):
        return None
    classes = {Value(INPUTS, 0): place.value("x"), Value(INPUTS, 1): place.value("w")}
    for position, node in enumerate(found[number].nodes):
        results = place.add(node.operator, [classes[v] for v in node.inputs], **node.values)
        classes |= {Value(position, n): x for n, x in enumerate(results)}
    return [classes[value] for value in found[number].outputs]


def _alone(name: str, types: Sequence[TensorType], attributes: Mapping[str, object]) -> Graph:
    return graph_of(name, types, dict(attributes))  # type: ignore[arg-type]
