"""The verification of corrected mutants: the field test, in three parts.

At small sizes every element is compared. At the real sizes the first points of every box in which
program and graph are each computed alike, and random elements besides. What is compared are the
two Programs; that a graph was made from a mutant plays no role.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mirage_py.errors import UnsupportedError
from mirage_py.networks.ir.evaluation import random_inputs
from mirage_py.networks.ir.graph import Graph
from mirage_py.networks.ir.lowering import program_of
from mirage_py.search.partial.boxes import differing_boxes, in_digits
from mirage_py.ugraph.field import FIELDS, FieldOps
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FieldMeaning
from mirage_py.verify.evaluate.work import MAX_TRIAL_WORK
from mirage_py.verify.pieces.elements import OutputPair

_TRIALS = 2
_SAMPLES = 16


@dataclass(frozen=True, slots=True)
class Evidence:
    """``boxes`` and ``samples`` count what was compared at the real sizes, ``small`` the elements
    at small ones, each in every one of ``trials``; ``reason`` says what differs.
    """

    equal: bool
    boxes: int
    samples: int
    small: int
    trials: int
    reason: str = ""

    def __str__(self) -> str:
        if not self.equal:
            return self.reason
        return (
            f"equal in all {self.boxes} boxes and {self.samples} random elements at the real "
            f"sizes, and in all {self.small} elements at small ones, in {self.trials} trials"
        )


def verified(
    program: Graph,
    graph: Graph,
    digits: tuple[tuple[int, ...], ...],
    small: tuple[Graph, Graph] | None,
    *,
    seed: int = 0,
) -> Evidence:
    """Compare a graph with the program of one result.

    ``graph`` has the result and then the same as ``digits``; ``small`` are both at small sizes.
    UnsupportedError where boxes cannot be derived.
    """
    flat = [n for axis in digits for n in axis]
    left, right = in_digits(program, flat), graph.with_outputs(graph.outputs[1:])
    boxes = elements = 0
    for trial in range(_TRIALS):
        found = differing_boxes(left, right, digits, seed=seed + trial)
        boxes = found.tested
        if found.boxes:
            return Evidence(False, boxes, 0, 0, trial + 1, str(found))
        if small is not None:
            elements, wrong = _small_difference(*small, seed + trial)
            if wrong:
                return Evidence(False, boxes, 0, elements, trial + 1, wrong)
    samples, wrong = _sampled(program, graph, seed)
    return Evidence(not wrong, boxes, samples, elements, _TRIALS, wrong)


def _small_difference(program: Graph, graph: Graph, seed: int) -> tuple[int, str]:
    """How many elements were compared, and the first that differs."""
    ops = FieldOps(FIELDS[seed % len(FIELDS)], seed)
    drawn = random_inputs(program, ops)
    inputs = {i.name: x for i, x in zip(program.inputs, drawn, strict=True)}
    ours, theirs = (
        evaluate_program(program_of(g), inputs, FieldMeaning(ops))["y0"].p for g in (program, graph)
    )
    places = np.argwhere(ours != theirs)
    if len(places):
        return ours.size, f"at small sizes element {list(map(int, places[0]))} differs"
    return ours.size, ""


def _sampled(program: Graph, graph: Graph, seed: int) -> tuple[int, str]:
    """Random elements at the real sizes."""
    left, right = program_of(program), program_of(graph.with_outputs(graph.outputs[:1]))
    pair = OutputPair((left, left.outputs[0]), (right, right.outputs[0]), MAX_TRIAL_WORK)
    shape = program.output_types[0].shape
    draw = np.random.default_rng(seed)
    count = 0
    for number in range(_SAMPLES):
        element = tuple(int(draw.integers(extent)) for extent in shape)
        found = pair.compare([element], number, seed)
        if found.left_out:
            raise UnsupportedError(f"element {element}: {found.left_out[element]}")
        if found.difference is not None:
            return count, f"element {list(found.difference)} differs"
        count += 1
    return count, ""
