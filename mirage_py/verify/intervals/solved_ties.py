"""Inputs on which a condition of the program is a tie, solved for where no random draw has one.

A guard of x / n is false where n is 0: for n = sum(w - 2) that takes numbers whose sum is exactly
right. So one element of an input is moved by the amount that makes both sides equal, taking the
difference for a polynomial of degree 2 in it. Where it is none, these are inputs like any others.
The amount is an exact number also where no float is: what adds up to 1e-4 is a tie with 1e-4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from mirage_py.ugraph.interpret import evaluate_nodes
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.evaluate.trial import COMPARISONS
from mirage_py.verify.intervals.exact_meaning import ExactMeaning, algebraic_root
from mirage_py.verify.intervals.exact_values import Exact
from mirage_py.verify.intervals.intervals import Interval

_LARGEST = 2.0**10


@dataclass(frozen=True, slots=True)
class _Move:
    """Of one draw: the comparison, and where its difference is looked at; the input, and which of
    its elements are moved, one for each place of that difference, whose axes have that order there.
    """

    compared: Node
    at: tuple[slice | int, ...]
    tensor: str
    elements: tuple[slice | int, ...]
    order: tuple[int, ...]


def with_ties(
    programs: Sequence[Program], inputs: Mapping[str, Exact], draws: Sequence[int], seed: int
) -> dict[str, Exact]:
    """The inputs, whose last axis counts draws, with a tie in each of ``draws`` where there can be:
    of each of the programs in turn.

    Both sides of comparisons are evaluated three times, on all draws at once.
    """
    found = {name: x.copy() for name, x in inputs.items()}
    for turn, program in enumerate(programs):
        _solve(program, found, draws[turn :: len(programs)], seed)
    return found


def _solve(program: Program, found: Mapping[str, Exact], draws: Sequence[int], seed: int) -> None:
    moves = _moves(program, draws, seed)
    if not moves:
        return
    nodes = list(dict.fromkeys(m.compared for m in moves.values()))
    wanted = [a for n in nodes for a in n.args]
    wanted += [a for n in wanted if program.nodes[n].op == "sqrt" for a in program.nodes[n].args]
    steps: list[Exact] = []
    for distance in (0.0, 1.0, -1.0):
        moved = {name: x.copy() for name, x in found.items()} if distance else found
        if distance:
            _put(moved, moves, _apply("add", _elements(moved, moves), _REALS.const(distance)))
        values = evaluate_nodes(program, moved, _REALS, wanted=wanted)
        differences = {n: _difference(program, values, n) for n in nodes}
        steps.append(_joined([_at(differences[m.compared], m, n) for n, m in moves.items()]))
    old = _elements(found, moves)
    new = _apply("add", old, _root(*steps))
    # A step that has no value is none.
    fits = (np.abs(new.interval.mid - old.interval.mid) <= _LARGEST) & new.interval.known()
    _put(found, moves, _apply("where", _REALS.mask(fits[..., 0]), new, old))


def _places(move: _Move, number: int) -> tuple[slice | int, ...]:
    return (*move.elements, slice(number, number + 1))


def _elements(tensors: Mapping[str, Exact], moves: Mapping[int, _Move]) -> Exact:
    """What is moved in all draws."""
    return _joined([tensors[m.tensor][_places(m, number)] for number, m in moves.items()])


def _put(tensors: Mapping[str, Exact], moves: Mapping[int, _Move], values: Exact) -> None:
    """Overwrite what ``_elements`` gives."""
    start = 0
    for number, move in moves.items():
        shape = tensors[move.tensor][_places(move, number)].residue.shape
        stop = start + prod(shape)
        value = _REALS.reshape(values[start:stop,], shape[:-1])
        tensors[move.tensor].put(_places(move, number), value)
        start = stop


def _joined(parts: Sequence[Exact]) -> Exact:
    """One tensor with the elements of all, each of a draw of its own: one operation for all."""
    rows = [_REALS.reshape(x, (x.residue.size,)) for x in parts]
    mid, rad = (np.concatenate([getattr(x.interval, n) for x in rows]) for n in ("mid", "rad"))
    return Exact(Interval(mid, rad), np.concatenate([x.residue for x in rows]))


def _root(here: Exact, above: Exact, below: Exact) -> Exact:
    """A zero of the polynomial of degree 1 or 2 with these values at 0, 1 and -1."""
    half = _REALS.const(0.5)
    slope = _apply("mul", half, _apply("sub", above, below))
    bend = _apply("sub", _apply("mul", half, _apply("add", above, below)), here)
    straight = _apply("neg", _apply("div", here, slope))
    product = _apply("mul", _REALS.const(4.0), _apply("mul", bend, here))
    spread = algebraic_root(_apply("sub", _apply("square", slope), product))
    bent = _apply("div", _apply("mul", half, _apply("sub", spread, slope)), bend)
    return _apply("where", bend, bent, straight)


_REALS = ExactMeaning()


def _apply(op: str, *args: Exact) -> Exact:
    return _REALS.apply(op, None, args)


def _difference(program: Program, values: Mapping[int, Exact], compared: Node) -> Exact:
    """Of both sides, or of their squares where one is a root."""
    sides = [values[a] for a in compared.args]
    roots = [program.nodes[a] for a in compared.args]
    if any(n.op == "sqrt" for n in roots):
        sides = [
            values[n.args[0]] if n.op == "sqrt" else _apply("square", x)
            for n, x in zip(roots, sides, strict=True)
        ]
    return _apply("sub", *sides)


def _at(difference: Exact, move: _Move, number: int) -> Exact:
    """Where a move looks at it, with the axes of what is moved."""
    draw = number if difference.residue.shape[-1] > 1 else 0
    return _REALS.transpose(difference[*move.at, slice(draw, draw + 1)], move.order)


def _moves(program: Program, draws: Sequence[int], seed: int) -> dict[int, _Move]:
    """A comparison and an input for each draw, in turn."""
    pairs = [
        (node, load)
        for node in program.nodes
        if node.op in COMPARISONS
        for load in _loads_below(program, node)
    ]
    moves: dict[int, _Move] = {}
    for turn, number in enumerate(draws if pairs else ()):
        node, load = pairs[turn % len(pairs)]
        draw = np.random.default_rng([seed, number, 1])
        place = {d: int(draw.integers(size)) for d, size in program.sizes.items()}
        shared = [d for d in program.sizes if d in load.dims and d in node.dims]
        index = load.access.index
        if not _is_plain(load):
            shared = []
        at = tuple(
            slice(None) if d in shared else place[d] if d in node.dims else 0 for d in program.sizes
        )
        # The dimension may be shorter than the axis, which another one reads to its end.
        elements = tuple(
            slice(program.sizes[str(e)]) if str(e) in shared else e.evaluate(place) for e in index
        )
        extents = program.tensors[load.access.tensor].shape
        order = tuple(shared.index(str(e)) for e in index if str(e) in shared)
        ends = zip(elements, extents, strict=True)
        if all(isinstance(e, slice) or 0 <= e < n for e, n in ends):
            moves[number] = _Move(node, at, load.access.tensor, elements, order)
    return moves


def _can_be_moved(program: Program, load: Node) -> bool:
    """Whether it reads numbers, at places that no other tensor holds."""
    is_float = program.tensors[load.access.tensor].dtype.is_float
    return is_float and not any(e.elements() for e in load.access.index)


def _loads_below(program: Program, node: Node) -> list[Node]:
    """The loads of numbers that a node is made of."""
    found: dict[int, Node] = {}
    todo, seen = list(node.args), set(node.args)
    while todo:
        position = todo.pop()
        below = program.nodes[position]
        if below.op == "load" and _can_be_moved(program, below):
            found[position] = below
        todo += [a for a in below.args if a not in seen]
        seen.update(below.args)
    return [found[n] for n in sorted(found)]


def _is_plain(load: Node) -> bool:
    """Whether each axis is read by a dimension of its own."""
    names = [e.name for e in load.access.index if e.is_dim]
    return len(dict.fromkeys(names)) == len(load.access.index)
