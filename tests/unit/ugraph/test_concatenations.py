"""Sums of exponentials over concatenations, cut into pieces: the same values, one exp for each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.concatenations import with_pieces


def softmax(sizes: tuple[int, ...], *, op: str = "exp") -> Program:
    """The first piece's share of a softmax over several, the last of one column for all rows."""
    b = ProgramBuilder("pieces")
    total, first = sum(sizes), sizes[0]
    for d, size in {"m": 4, "s": total, "t": first}.items():
        b.dim(d, size)
    for n, size in enumerate(sizes):
        b.input(f"X{n}", (4, size), F32)

    def joined(dim: str) -> int:
        starts = [sum(sizes[:n]) for n in range(len(sizes))]
        at = [(ix.dim(dim) - start) % size for start, size in zip(starts, sizes, strict=True)]
        found = b.load(f"X{len(sizes) - 1}", [ix.dim("m"), at[-1]])
        for n in reversed(range(len(sizes) - 1)):
            inside = b.mask(ix.compare("lt", ix.dim(dim), starts[n + 1]))
            found = b.apply("where", inside, b.load(f"X{n}", [ix.dim("m"), at[n]]), found)
        return b.apply(op, found)

    share = b.apply("div", joined("t"), b.sum(joined("s"), "s"))
    b.output("Y", share, "mt", F32)
    return b.build()


def values(program: Program, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    (found,) = evaluate_program(program, inputs, FloatMeaning()).values()
    return np.asarray(found)


@pytest.mark.parametrize("sizes", [(6, 1), (5, 3), (3, 5), (4, 4), (6, 2, 1)])
def test_each_piece_has_one_exponential_and_no_choice(sizes: tuple[int, ...]) -> None:
    program = softmax(sizes)
    found = with_pieces(program)
    names = [n.op for n in found.nodes]
    assert names.count("exp") == len(sizes)
    assert "where" not in names
    assert sum(sizes) not in found.sizes.values()
    draw = np.random.default_rng(0)
    inputs = {t.name: draw.normal(size=t.shape) for t in program.inputs}
    np.testing.assert_allclose(values(found, inputs), values(program, inputs), rtol=1e-12)
    assert with_pieces(found) == found


def test_a_sum_of_weights_over_all_pieces_stays_whole() -> None:
    b = ProgramBuilder("joint")
    for d, size in {"m": 4, "s": 8, "n": 3}.items():
        b.dim(d, size)
    b.input("X0", (4, 5), F32)
    b.input("X1", (4, 3), F32)
    b.input("V", (8, 3), F32)
    places = [[ix.dim("m"), (ix.dim("s") - start) % size] for start, size in ((0, 5), (5, 3))]
    inside = b.mask(ix.compare("lt", ix.dim("s"), 5))
    weights = b.apply(
        "exp", b.apply("where", inside, b.load("X0", places[0]), b.load("X1", places[1]))
    )
    share = b.apply("div", b.matmul(weights, b.load("V", "sn"), "s"), b.sum(weights, "s"))
    b.output("Y", share, "mn", F32)
    program = b.build()
    assert with_pieces(program) is program


def test_other_sums_stay_as_they_are() -> None:
    program = softmax((5, 3), op="square")
    assert with_pieces(program) is program
