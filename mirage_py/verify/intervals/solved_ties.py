"""Inputs on which a condition of the program is a tie, solved for where no random draw has one.

A guard of x / n is false where n is 0: for n = sum(w - 2) that takes numbers whose sum is exactly
right. So one element of an input is moved by the amount that makes both sides equal, taking the
difference for a linear function of it. Where it is not linear, these are inputs like any others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mirage_py.ugraph.interpret import evaluate_nodes
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.intervals.interval_meaning import IntervalMeaning
from mirage_py.verify.intervals.intervals import Interval, exact

_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
# Numbers of few bits, so that sums of them are exact.
_BITS, _LARGEST = 2.0**20, 2.0**10


@dataclass(frozen=True, slots=True)
class _Move:
    """Of one draw: the comparison, and where its difference is looked at; the input, and which of
    its elements are moved, one for each place of that difference.
    """

    compared: Node
    at: tuple[slice | int, ...]
    tensor: str
    elements: tuple[slice | int, ...]


def with_ties(
    program: Program, inputs: Mapping[str, FloatArray], draws: Sequence[int], seed: int
) -> dict[str, FloatArray]:
    """The inputs, whose last axis counts draws, with a tie in each of ``draws`` where there can be.

    Both sides of comparisons are evaluated twice, on all draws at once.
    """
    found = {name: x.copy() for name, x in inputs.items()}
    moves = _moves(program, draws, seed)
    if not moves:
        return found
    wanted = tuple(dict.fromkeys(a for m in moves.values() for a in m.compared.args))
    moved = {name: x.copy() for name, x in inputs.items()}
    for number, move in moves.items():
        moved[move.tensor][*move.elements, number] += 1.0
    sides = [
        evaluate_nodes(program, {n: exact(x) for n, x in arrays.items()}, _REALS, wanted=wanted)
        for arrays in (found, moved)
    ]
    for number, move in moves.items():
        before, after = (_difference(s, move, number) for s in sides)
        with np.errstate(all="ignore"):
            step = -before / (after - before)
            is_short = (np.abs(step) <= _LARGEST) & (np.rint(step * _BITS) == step * _BITS)
        found[move.tensor][*move.elements, number] += np.where(is_short, step, 0.0)
    return found


_REALS = IntervalMeaning()


def _difference(values: Mapping[int, Interval], move: _Move, number: int) -> FloatArray:
    left, right = (values[a].mid for a in move.compared.args)
    with np.errstate(all="ignore"):
        difference = left - right
    draw = number if difference.shape[-1] > 1 else 0
    return np.asarray(difference[*move.at, draw])


def _moves(program: Program, draws: Sequence[int], seed: int) -> dict[int, _Move]:
    """A comparison and an input for each draw, in turn."""
    pairs = [
        (node, load)
        for node in program.nodes
        if node.op in _COMPARISONS
        for load in _loads_below(program, node)
    ]
    moves: dict[int, _Move] = {}
    for turn, number in enumerate(draws if pairs else ()):
        node, load = pairs[turn % len(pairs)]
        draw = np.random.default_rng([seed, number, 1])
        place = {d: int(draw.integers(size)) for d, size in program.sizes.items()}
        shared = [d for d in load.dims if d in node.dims]
        at = tuple(
            slice(None) if d in shared else place[d] if d in node.dims else 0 for d in program.sizes
        )
        names = [e.dims()[0] for e in load.access.index]
        elements = tuple(slice(None) if d in shared else place[d] for d in names)
        moves[number] = _Move(node, at, load.access.tensor, elements)
    return moves


def _loads_below(program: Program, node: Node) -> list[Node]:
    """The loads of numbers that a node is made of, those that read a tensor as it lies."""
    found: dict[int, Node] = {}
    todo, seen = list(node.args), set(node.args)
    while todo:
        position = todo.pop()
        below = program.nodes[position]
        if below.op == "load" and _is_plain(program, below):
            found[position] = below
        todo += [a for a in below.args if a not in seen]
        seen.update(below.args)
    return [found[n] for n in sorted(found)]


def _is_plain(program: Program, load: Node) -> bool:
    """Whether each axis is read by a dimension of the program's order."""
    index = load.access.index
    order = [list(program.sizes).index(e.name) for e in index if e.is_dim]
    is_ordered = len(order) == len(index) and order == sorted(set(order))
    return is_ordered and program.tensors[load.access.tensor].dtype.is_float
