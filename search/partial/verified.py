"""The verification of corrected mutants: the field test, in three parts.

At small sizes every element is compared. At the real sizes the first points of every box in which
program and graph are each computed alike, and random elements besides. What is compared are the
two Programs; that a graph was made from a mutant plays no role.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    digits: Sequence[tuple[tuple[int, ...], ...]],
    small: tuple[Graph, Graph] | None,
    *,
    seed: int = 0,
) -> Evidence:
    """Compare a graph with a program.

    ``graph`` has the program's results and then the same as ``digits``; ``small`` are both at small
    sizes. UnsupportedError where boxes cannot be derived.
    """
    count = len(program.outputs)
    boxes = elements = samples = 0
    for number in range(count):
        flat = tuple(n for axis in digits[number] for n in axis)
        left = in_digits(program, number, flat)
        right = graph.with_outputs((graph.outputs[count + number],))
        trials = [
            differing_boxes(left, right, digits[number], seed=seed + n) for n in range(_TRIALS)
        ]
        boxes += trials[0].tested
        for found in trials:
            if found.boxes:
                return Evidence(False, boxes, 0, 0, _TRIALS, str(found))
    for trial in range(_TRIALS if small is not None else 0):
        assert small is not None
        elements, wrong = _small_difference(*small, seed + trial)
        if wrong:
            return Evidence(False, boxes, 0, elements, trial + 1, wrong)
    for number in range(count):
        more, wrong = _sampled(program, graph, number, seed)
        samples += more
        if wrong:
            return Evidence(False, boxes, samples, elements, _TRIALS, wrong)
    return Evidence(True, boxes, samples, elements, _TRIALS)


def _small_difference(program: Graph, graph: Graph, seed: int) -> tuple[int, str]:
    """How many elements were compared, and the first that differs."""
    ops = FieldOps(FIELDS[seed % len(FIELDS)], seed)
    drawn = random_inputs(program, ops)
    inputs = {i.name: x for i, x in zip(program.inputs, drawn, strict=True)}
    results = graph.with_outputs(graph.outputs[: len(program.outputs)])
    ours, theirs = (
        evaluate_program(program_of(g), inputs, FieldMeaning(ops)) for g in (program, results)
    )
    for name, value in ours.items():
        places = np.argwhere(value.p != theirs[name].p)
        if len(places):
            return 0, f"at small sizes element {list(map(int, places[0]))} of {name} differs"
    return sum(value.size for value in ours.values()), ""


def _sampled(program: Graph, graph: Graph, number: int, seed: int) -> tuple[int, str]:
    """Random elements of one result at the real sizes."""
    # With all results, so that both have all inputs.
    results = graph.with_outputs(graph.outputs[: len(program.outputs)])
    left, right = program_of(program), program_of(results)
    pair = OutputPair((left, left.outputs[number]), (right, right.outputs[number]), MAX_TRIAL_WORK)
    shape = program.output_types[number].shape
    draw = np.random.default_rng([seed, number])
    count = 0
    for trial in range(_SAMPLES):
        element = tuple(int(draw.integers(extent)) for extent in shape)
        found = pair.compare([element], trial, seed)
        if found.left_out:
            raise UnsupportedError(f"element {element}: {found.left_out[element]}")
        if found.difference is not None:
            return count, f"element {list(found.difference)} of result {number} differs"
        count += 1
    return count, ""
