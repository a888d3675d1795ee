"""Mutations: mutants of a program, corrected where they differ from it, and verified.

A mutant that agrees with the program on most of its results takes its place; the wrong boxes are
computed by the program's own operators and written over. What comes out is compared with the
program by the field test, which knows nothing of mutants.

Source: PET (OSDI 2021).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mirage_py.errors import InputError, UnsupportedError
from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.graph import Graph
from mirage_py.networks.operators import operator, products
from mirage_py.search.partial.boxes import WrongBoxes, wrong_boxes
from mirage_py.search.partial.enumerate import found_recipes, is_mutable
from mirage_py.search.partial.joins import found_joins
from mirage_py.search.partial.recipe import Mutant, mutant_graph, of_shape, with_inputs, work
from mirage_py.search.partial.restricted import parts_of, restricted
from mirage_py.search.partial.small_sizes import small_graph
from mirage_py.search.partial.verified import Evidence, verified

# Channels that tensor cores take at once.
_STEP = 16
# Of a result: more of it is not computed twice.
_MOST_WRONG = 0.25


@dataclass(frozen=True, slots=True)
class Mutation:
    """``graph`` computes what ``program`` does; ``boxes`` say where the mutant alone does not."""

    program: Graph
    graph: Graph
    mutant: Mutant
    boxes: tuple[WrongBoxes, ...]
    evidence: Evidence

    @property
    def work(self) -> tuple[int, int]:
        """Products summed up by the program and by this graph, corrections among them."""
        return work(self.program), work(self.graph)

    def __str__(self) -> str:
        count = sum(len(wrong.boxes) for wrong in self.boxes)
        return f"{self.mutant}: {f'corrected in {count} boxes' if count else 'equal'}"


def corrected_graph(graph: Graph, mutant: Mutant, boxes: Sequence[WrongBoxes]) -> Graph:
    """The mutant with its wrong boxes computed as the program does; without boxes, as it is.

    Its outputs are the results, and then the same as digits.
    """
    builder = with_inputs(graph)
    found = list(mutant.build(builder, graph))
    for number, wrong in enumerate(boxes):
        node = graph.nodes[graph.outputs[number].node]
        for part in (part for box in wrong.boxes for part in parts_of(wrong.digits, box)):
            shape = tuple(stop - start for start, stop in part.box)
            piece = of_shape(builder, restricted(builder, node, part.grids), shape)
            start = tuple(start for start, _ in part.box)
            found[number] = builder.apply("overwrite", found[number], piece, start=start)
    types = zip(found, graph.output_types, strict=True)
    return builder.build(*(of_shape(builder, x, kind.shape) for x, kind in types), *found)


def mutation(graph: Graph, mutant: Mutant) -> Mutation:
    """The graph by a mutant, corrected and verified: ``evidence.equal`` says with what result.

    Raises UnsupportedError where boxes cannot be derived, InputError where the mutant does not fit.
    """
    boxes = wrong_boxes(graph, mutant)
    changed = corrected_graph(graph, mutant, boxes)
    results = GraphBuilder()
    place = results.copied(changed)
    alone = results.build(*(place[v] for v in changed.outputs[: len(graph.outputs)]))
    try:
        few = small_graph(graph)
        small = few, corrected_graph(few, mutant, wrong_boxes(few, mutant))
    except (InputError, UnsupportedError):
        small = None
    digits = [wrong.digits for wrong in boxes]
    evidence = verified(graph, changed, digits, small)
    return Mutation(graph, alone, mutant, boxes, evidence)


def mutations(graph: Graph, *, most: int = 8, rounds: int = 1) -> list[Mutation]:
    """Verified mutations of a graph, those with the least work for tensor cores first.

    The graph is one convolution or product, or several that do not read each other's results and
    are joined to one. ``rounds`` is how many recipes may follow each other in one. Mutants with
    more than a quarter of a result wrong, or that the field test does not find equal, are left
    out; of those that ask a library for the same, all but the first.
    """
    mutants: Iterable[Mutant] = ()
    if is_mutable(graph):
        mutants = [f.recipe for f in found_recipes(graph, rounds=rounds)]
    elif len(graph.nodes) > 1:
        mutants = found_joins(graph)
    sized: list[tuple[int, Mutant]] = []
    seen = {_calls(graph): None}
    for mutant in mutants:
        try:
            # Another layout of what a library already computes so is no gain.
            calls = _calls(mutant_graph(graph, mutant))
            if calls in seen:
                continue
            seen[calls] = None
            boxes = wrong_boxes(graph, mutant)
            if all(wrong.share <= _MOST_WRONG for wrong in boxes):
                changed = corrected_graph(graph, mutant, boxes)
                sized.append((work(changed, step=_STEP), mutant))
        except (InputError, UnsupportedError):
            continue
    # Of equal work the mutant that was found first, which agrees more.
    sized.sort(key=lambda pair: pair[0])
    result: list[Mutation] = []
    for _, mutant in sized:
        if len(result) == most:
            break
        try:
            tried = mutation(graph, mutant)
        except UnsupportedError:
            continue
        if tried.evidence.equal:
            result.append(tried)
    return result


def _calls(graph: Graph) -> tuple[object, ...]:
    """What a library is asked for: operators with attributes and types of operands, in order."""
    found: list[object] = []
    for node in graph.nodes:
        if operator(node.operator).linear == products.LINEAR:
            types, attributes = tuple(graph.type_of(v) for v in node.inputs), node.values
            if "dilation" in attributes:
                # Of a kernel of one element it says nothing.
                kernel = zip(types[1].shape[2:], attributes["dilation"], strict=True)
                attributes = {**attributes, "dilation": tuple(d if k > 1 else 1 for k, d in kernel)}
            found.append((node.operator, tuple(attributes.items()), types))
    return tuple(found)
