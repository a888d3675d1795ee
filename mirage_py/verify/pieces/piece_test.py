"""The piece test: two programs in every piece that conditions divide the outputs into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Output, Program
from mirage_py.verify.evaluate.trial import ORDERED
from mirage_py.verify.evaluate.work import MAX_TRIAL_WORK
from mirage_py.verify.pieces.cells import Side
from mirage_py.verify.pieces.elements import Element, OutputPair
from mirage_py.verify.pieces.pieces import Pieces, pieces_of

# Of an axis that no condition mentions, and of all such axes together.
_POSITIONS = 4
_ELEMENTS = 16
_TRIALS = 2
# An order of the field hides every second difference from a single element.
_ORDERED_TRIALS = 8
_NAMED = 3


@dataclass(frozen=True, slots=True)
class PieceTest:
    """``difference`` is an output, an element of it and the trial; ``skipped`` says what was not
    tested.
    """

    pieces: int = 0
    difference: tuple[str, Element, int] | None = None
    skipped: tuple[str, ...] = ()


def piece_test(
    left: Program, right: Program, outputs: Sequence[tuple[Output, Output]], *, seed: int
) -> PieceTest:
    """Compare both, which have equal interfaces, at the corners of each piece and random elements.

    Pieces that would take too much are skipped, and named.
    """
    count = 0
    skipped: list[str] = []
    for one, other in outputs:
        name, shape = one.tensor.name, one.tensor.shape
        sides = [side_of(left, one), side_of(right, other)]
        pieces = pieces_of(sides, shape, seed=seed)
        if pieces.unknown:
            skipped.append(f"pieces of {name}: {pieces.unknown}")
        if not pieces.axes:
            # One piece, which random elements are of.
            continue
        ordered = any(n.op in ORDERED for side in sides for n in side.nodes)
        pair = OutputPair((left, one), (right, other), MAX_TRIAL_WORK)
        left_out: dict[Element, str] = {}
        for trial in range(_ORDERED_TRIALS if ordered else _TRIALS):
            elements = _elements(pieces, shape, np.random.default_rng([seed, trial]))
            found = pair.compare(elements, trial, seed)
            if found.difference is not None:
                return PieceTest(count, (name, found.difference, trial), tuple(skipped))
            left_out = left_out if trial else found.left_out
        missed = _missed(pieces, left_out)
        count += len(pieces.points) - len(missed)
        skipped += [
            f"{name}{piece_name(shape, pieces.axes, p)}: {why}" for p, why in missed[:_NAMED]
        ]
        if len(missed) > _NAMED:
            skipped.append(f"{len(missed) - _NAMED} more pieces of {name}")
    return PieceTest(count, None, tuple(skipped))


def side_of(program: Program, output: Output) -> Side:
    """The nodes that an output depends on."""
    needed = {output.node: None}
    for position in range(output.node, -1, -1):
        if position in needed:
            needed.update(dict.fromkeys(program.nodes[position].args))
    nodes: list[Node] = [program.nodes[n] for n in sorted(needed)]
    return Side(tuple(nodes), program.sizes, output.index)


def _elements(pieces: Pieces, shape: Sequence[int], draw: np.random.Generator) -> list[Element]:
    """Each point of each piece, at the same few random positions along the other axes."""
    places: list[Sequence[int]] = []
    for axis, extent in enumerate(shape):
        room = _ELEMENTS // max(1, int(np.prod([len(p) for p in places])))
        wanted = 1 if axis in pieces.axes else max(1, min(extent, room, _POSITIONS))
        places.append([int(n) for n in draw.choice(extent, wanted, replace=False)])
    elements = []
    for point in dict.fromkeys(p for points in pieces.points for p in points):
        for axis, at in zip(pieces.axes, point, strict=True):
            places[axis] = [at]
        elements += list(product(*places))
    return elements


def _missed(pieces: Pieces, left_out: dict[Element, str]) -> list[tuple[Element, str]]:
    """The pieces of which every point was left out: a point of each, and why."""
    why = {tuple(e[a] for a in pieces.axes): reason for e, reason in left_out.items()}
    return [
        (points[0], why[points[0]])
        for points in pieces.points
        if all(point in why for point in points)
    ]


def piece_name(shape: Sequence[int], axes: Sequence[int], point: Element) -> str:
    """A point as the index of a tensor; other axes are taken completely."""
    at = dict(zip(axes, point, strict=True))
    return f"[{', '.join(str(at.get(n, ':')) for n in range(len(shape)))}]"
