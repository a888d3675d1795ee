"""Evaluation of programs: complete, node by node, or at some points of the outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from mirage_py.errors import InputError, ValidationError
from mirage_py.ugraph.interpret.frame import Frame, Span
from mirage_py.ugraph.interpret.meaning import Meaning
from mirage_py.ugraph.interpret.memory import Window
from mirage_py.ugraph.interpret.steps import node_step
from mirage_py.ugraph.ir.program import Program

A = TypeVar("A")

# A node, and those of its dimensions that are restricted to the points asked for.
_Task = tuple[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Sample(Generic[A]):
    """Some elements of an output: ``tensor[elements]`` should equal ``values``, in shape too."""

    elements: tuple[NDArray[np.int64], ...]
    values: A


def evaluate_program(
    program: Program, inputs: Mapping[str, A], meaning: Meaning[A]
) -> dict[str, A]:
    """The outputs by name, each in the layout of its tensor.

    Raises InputError for inputs that are missing or of another shape, ValidationError for an output
    whose indices do not name every element once.
    """
    order = tuple(program.sizes)
    frame = Frame.whole(program.sizes)
    roots = [o.node for o in program.outputs]
    values = _evaluate(program, inputs, meaning, [(n, ()) for n in roots], {}, {})
    results: dict[str, A] = {}
    for result in program.outputs:
        buffer = meaning.buffer(result.tensor.shape)
        Window(result.index, order, meaning).write(buffer, frame, values[result.node, ()])
        if buffer.missing():
            raise ValidationError(
                f"{buffer.missing()} of {result.tensor.elements} elements are never written",
                where=f"output {result.tensor.name}",
            )
        results[result.tensor.name] = buffer.read()
    return results


def evaluate_nodes(
    program: Program,
    inputs: Mapping[str, A],
    meaning: Meaning[A],
    *,
    overrides: Mapping[int, A] | None = None,
    wanted: Iterable[int] | None = None,
) -> dict[int, A]:
    """Full-rank values of nodes: of all, or of those ``wanted``.

    ``overrides`` gives nodes a value instead of computing it; all that follows uses that value.
    """
    nodes = range(len(program.nodes)) if wanted is None else wanted
    given = overrides or {}
    values = _evaluate(program, inputs, meaning, [(n, ()) for n in nodes], {}, given)
    return {n: value for (n, _), value in values.items()}


def evaluate_at(
    program: Program,
    inputs: Mapping[str, A],
    meaning: Meaning[A],
    points: Mapping[str, tuple[int, int] | NDArray[np.int64]],
    overrides: Mapping[int, A] | None = None,
) -> dict[str, Sample[A]]:
    """The outputs at some positions of their dimensions only; reductions run over everything.

    ``points`` gives for a dimension the interval ``(start, stop)`` or a list of positions; other
    dimensions are taken whole. A few rows and columns of a large product cost little. ``overrides``
    gives nodes a full-rank value at those points instead of computing it.
    """
    order = tuple(program.sizes)
    spans = {d: _span(program, d, where) for d, where in points.items()}
    frame = Frame.whole(program.sizes).moved(spans)
    tasks = [(o.node, _restricted(program, o.node, tuple(spans))) for o in program.outputs]
    values = _evaluate(program, inputs, meaning, tasks, spans, overrides or {})
    samples: dict[str, Sample[A]] = {}
    for result, task in zip(program.outputs, tasks, strict=True):
        window: Window[A] = Window(result.index, order, meaning)
        elements = window.elements(frame)
        shape = frame.shape(window.dims) if elements else ()
        value = meaning.stretch(values[task], shape) if shape else meaning.reshape(values[task], ())
        samples[result.tensor.name] = Sample(
            tuple(np.broadcast_to(e, shape) for e in elements), value
        )
    return samples


def check_inputs(program: Program, inputs: Mapping[str, A], meaning: Meaning[A]) -> None:
    """InputError unless every input is there in its shape."""
    for tensor in program.inputs:
        if tensor.name not in inputs:
            raise InputError(f"no value for input '{tensor.name}'", where=program.name)
        shape = tuple(meaning.shape(inputs[tensor.name]))
        if shape != tensor.shape:
            raise InputError(
                f"input '{tensor.name}' has shape {list(shape)}, not {list(tensor.shape)}",
                where=program.name,
            )


def _evaluate(
    program: Program,
    inputs: Mapping[str, A],
    meaning: Meaning[A],
    roots: list[_Task],
    spans: Mapping[str, Span],
    overrides: Mapping[int, A],
) -> dict[_Task, A]:
    """Values of the roots. Others are dropped after their last use."""
    check_inputs(program, inputs, meaning)
    whole = Frame.whole(program.sizes)
    frames: dict[tuple[str, ...], Frame] = {(): whole}
    uses: Counter[_Task] = Counter(roots)
    operands: dict[_Task, list[_Task]] = {}
    asked: dict[int, dict[_Task, None]] = {n: {} for n in range(len(program.nodes))}
    for root in roots:
        asked[root[0]][root] = None
    # From the back: who needs which node, restricted to the points or whole. A reduction needs its
    # dimensions whole even where the output is restricted along a dimension of the same name.
    for node in reversed(range(len(program.nodes))):
        for task in asked[node]:
            needs = () if node in overrides else program.nodes[node].args
            operands[task] = [(a, _needed(program, node, a, task[1])) for a in needs]
            for need in operands[task]:
                uses[need] += 1
                asked[need[0]][need] = None
    values: dict[_Task, A] = {}
    for task in sorted(operands):
        node, restricted = task
        if restricted not in frames:
            frames[restricted] = whole.moved({d: spans[d] for d in restricted})
        if node in overrides:
            values[task] = overrides[node]
            continue
        step = node_step(program.nodes, node, inputs, program.sizes, meaning)
        frame = frames[restricted]
        if program.nodes[node].op == "read":
            # Of what it reads those points are all there is.
            ((_, along),) = operands[task]
            frame = frame.moved({d: range(len(spans[d])) for d in along})
        values[task] = step([values[t] for t in operands[task]], frame)
        for used in operands[task]:
            uses[used] -= 1
            if not uses[used]:
                del values[used]
    return values


def _needed(program: Program, node: int, operand: int, dims: tuple[str, ...]) -> tuple[str, ...]:
    """The dimensions along which a node at some points of ``dims`` needs an operand there only."""
    found = _restricted(program, operand, dims)
    if program.nodes[node].op != "read":
        return found
    in_place = program.nodes[node].in_place(program.nodes[operand].dims)
    return tuple(d for d in found if d in in_place)


def _restricted(program: Program, node: int, dims: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(d for d in program.nodes[node].dims if d in dims)


def _span(program: Program, dim: str, where: tuple[int, int] | NDArray[np.int64]) -> Span:
    size = program.sizes.get(dim)
    if size is None:
        raise InputError(f"no dimension '{dim}'", where=program.name)
    span = range(*where) if isinstance(where, tuple) else np.asarray(where, dtype=np.int64)
    if len(span) == 0 or min(span) < 0 or max(span) >= size:
        raise InputError(
            f"points of dimension '{dim}' are outside 0..{size - 1}, or none", where=program.name
        )
    return span
