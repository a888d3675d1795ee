"""Mutations: mutants of a program, corrected where they differ from it, and verified.

A mutant that agrees with the program on most of its result takes its place; the wrong boxes are
computed by the program's own operator and written over. What comes out is compared with the
program by the field test, which knows nothing of boxes.

Source: PET (OSDI 2021).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mirage_py.errors import InputError, UnsupportedError
from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.graph import INPUTS, Graph, Value
from mirage_py.networks.ir.regions import Region, with_replacement
from mirage_py.search.partial.boxes import WrongBoxes, wrong_boxes
from mirage_py.search.partial.enumerate import found_recipes, is_mutable
from mirage_py.search.partial.recipe import Recipe, build_mutant, work
from mirage_py.search.partial.restricted import parts_of, restricted
from mirage_py.search.partial.small_sizes import small_graph
from mirage_py.search.partial.verified import Evidence, verified


@dataclass(frozen=True, slots=True)
class Mutation:
    """``graph`` computes what ``program`` does, unless ``is_corrected`` is false: then ``boxes``
    says where it differs, and ``evidence`` is None.
    """

    program: Graph
    graph: Graph
    recipe: Recipe
    boxes: WrongBoxes
    evidence: Evidence | None
    is_corrected: bool

    @property
    def work(self) -> tuple[int, int]:
        """Products summed up by the program and by this graph, corrections among them."""
        return work(self.program), work(self.graph)

    def __str__(self) -> str:
        if self.is_corrected:
            how = f"corrected in {len(self.boxes.boxes)} boxes" if self.boxes.boxes else "equal"
            return f"{self.recipe}: {how}"
        return f"{self.recipe}: NOT EQUAL, {self.boxes}"


def corrected_graph(graph: Graph, recipe: Recipe, boxes: WrongBoxes | None) -> Graph:
    """The mutant with its wrong boxes computed as the program does; without boxes, as it is.

    It has two outputs: the result, and the same as digits.
    """
    builder = GraphBuilder()
    for entry in graph.inputs:
        constant = entry.name in graph.constants
        builder.input(entry.name, entry.type.shape, entry.type.dtype, constant=constant)
    operands = [Value(INPUTS, v.index) for v in graph.nodes[0].inputs]
    digits = build_mutant(builder, graph, recipe, operands).digits
    for box in () if boxes is None else boxes.boxes:
        for part in parts_of(boxes.digits if boxes else (), box):
            computed = restricted(builder, graph, operands, part.grids)
            shape = tuple(stop - start for start, stop in part.box)
            start = tuple(start for start, _ in part.box)
            piece = _of_shape(builder, computed, shape)
            digits = builder.apply("overwrite", digits, piece, start=start)
    return builder.build(_of_shape(builder, digits, graph.output_types[0].shape), digits)


def _of_shape(builder: GraphBuilder, x: Value, shape: tuple[int, ...]) -> Value:
    if builder.type_of(x).shape == shape:
        return x
    return builder.apply("reshape", x, shape=shape)


def mutation(graph: Graph, recipe: Recipe, *, uncorrected: bool = False, seed: int = 0) -> Mutation:
    """The mutant by a recipe, corrected and verified: ``evidence.equal`` says with what result.

    ``uncorrected`` leaves it as it is: it is then another function, and ``boxes`` says where.
    Raises UnsupportedError where boxes cannot be derived, InputError where the recipe does not fit.
    """
    boxes = wrong_boxes(graph, recipe, seed=seed)
    changed = corrected_graph(graph, recipe, None if uncorrected else boxes)
    alone = _result_alone(changed)
    if uncorrected and boxes.boxes:
        return Mutation(graph, alone, recipe, boxes, None, False)
    few = small_graph(graph)
    try:
        small = few, corrected_graph(few, recipe, wrong_boxes(few, recipe, seed=seed))
    except (InputError, UnsupportedError):
        small = None
    evidence = verified(graph, changed, boxes.digits, small, seed=seed)
    return Mutation(graph, alone, recipe, boxes, evidence, True)


def _result_alone(graph: Graph) -> Graph:
    builder = GraphBuilder()
    return builder.build(builder.copied(graph)[graph.outputs[0]])


def mutations(
    graph: Graph,
    *,
    most_wrong: float = 0.25,
    most: int = 8,
    rounds: int = 1,
    uncorrected: bool = False,
    seed: int = 0,
) -> list[Mutation]:
    """Verified mutations of the one operator of a graph, those with the fewest products first.

    ``rounds`` is how many recipes may follow each other. Those with more than ``most_wrong`` of
    their result wrong, or that the field test does not find equal, are left out.
    """
    if not is_mutable(graph):
        return []
    sized: list[tuple[int, Recipe]] = []
    for found in found_recipes(graph, rounds=rounds, seed=seed):
        try:
            boxes = wrong_boxes(graph, found.recipe, seed=seed)
            if boxes.share <= most_wrong:
                sized.append((work(corrected_graph(graph, found.recipe, boxes)), found.recipe))
        except (InputError, UnsupportedError):
            continue
    # Of equal work the recipe that was found first, which agrees more.
    sized.sort(key=lambda pair: pair[0])
    result: list[Mutation] = []
    for _, recipe in sized:
        if len(result) == most:
            break
        tried = mutation(graph, recipe, uncorrected=uncorrected, seed=seed)
        if tried.evidence is None or tried.evidence.equal:
            result.append(tried)
    return result


def mutated_networks(graph: Graph, **options: Any) -> Iterator[tuple[int, Mutation, Graph]]:
    """Each mutation of each operator of a network: the node, the mutation, the whole graph."""
    known: dict[str, Sequence[Mutation]] = {}
    for number in range(len(graph.nodes)):
        region = Region.of(graph, [number])
        alone = region.graph(graph)
        if alone.digest not in known:
            known[alone.digest] = mutations(alone, **options)
        for found in known[alone.digest]:
            yield number, found, with_replacement(graph, region, found.graph)
