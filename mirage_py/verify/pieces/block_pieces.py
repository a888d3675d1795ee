"""Pieces of a program's outputs, as points by which blocks of a µGraph are looked up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.verify.pieces.cells import Side
from mirage_py.verify.pieces.elements import solved
from mirage_py.verify.pieces.piece_test import piece_name, side_of
from mirage_py.verify.pieces.pieces import pieces_of


@dataclass(frozen=True, slots=True)
class BlockPiece:
    """Points of one piece, each a position for some of the output's dimensions."""

    name: str
    output: str
    points: tuple[Mapping[str, int], ...]


def block_pieces(
    program: Program, ugraph: UGraph, *, seed: int
) -> tuple[tuple[BlockPiece, ...], tuple[str, ...]]:
    """The pieces that conditions of program and kernels cut the outputs into, and why there are
    none of some outputs.

    Kernels have the program's dimensions, so that both are looked at together.
    """
    found: list[BlockPiece] = []
    unknown: list[str] = []
    blocks = [k for k in ugraph.kernels if isinstance(k, BlockGraph)]
    nodes = tuple(n for block in blocks for n in block.nodes)
    for output in program.outputs:
        name, shape = output.tensor.name, output.tensor.shape
        sides = side_of(program, output), Side(nodes, program.sizes, output.index)
        pieces = pieces_of(sides, shape, seed=seed)
        if pieces.unknown:
            unknown.append(f"pieces of {name}: {pieces.unknown}")
        for points in pieces.points if pieces.axes else ():
            located = []
            for point in points:
                where: dict[str, int] = {}
                for axis, at in zip(pieces.axes, point, strict=True):
                    where |= solved(output.index[axis], at, program.sizes) or {}
                located.append(where)
            words = f"{name}{piece_name(shape, pieces.axes, points[0])}"
            found.append(BlockPiece(words, name, tuple(located)))
    return tuple(found), tuple(unknown)
