from __future__ import annotations

import numpy as np

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.interpret.program import evaluate_program
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.renaming import rename_dims, tidy_dims


def program() -> Program:
    """Every kind of attribute, over dimensions named as views leave them."""
    b = ProgramBuilder("p")
    for name, size in [("s_4", 3), ("t_2", 5), ("n_1", 2), ("n_7", 4)]:
        b.dim(name, size)
    b.input("t", (3, 5), F32)
    b.input("w", (5, 8), F32)
    kept = b.mask(ix.compare("le", ix.dim("t_2"), ix.dim("s_4") + 1))
    x = b.apply("mul", b.load("t", ("s_4", "t_2")), kept)
    x = b.apply("add", x, b.index(ix.dim("t_2") * 2))
    x = b.apply("sub", x, b.mean(x, ["t_2"]))
    x = b.apply("sub", x, b.max(x, ["t_2"]))
    column = ix.dim("n_1") * 4 + ix.dim("n_7")
    y = b.sum(b.apply("mul", x, b.load("w", (ix.dim("t_2"), column))), ["t_2"])
    b.output("y", y, ("s_4", column), F32)
    return b.build()


def test_names_get_short_and_the_value_stays():
    before = program()
    after = tidy_dims(before)
    assert after.dim_names == ("s", "t_1", "n", "n_1")  # t is a tensor
    rng = np.random.default_rng(0)
    inputs = {"t": rng.normal(size=(3, 5)), "w": rng.normal(size=(5, 8))}
    expected = evaluate_program(before, inputs, FloatMeaning())["y"]
    np.testing.assert_array_equal(evaluate_program(after, inputs, FloatMeaning())["y"], expected)


def test_tidying_twice_changes_nothing():
    once = tidy_dims(program())
    assert tidy_dims(once) == once


def test_dimensions_may_trade_names():
    names = {"s_4": "t_2", "t_2": "s_4"}
    assert rename_dims(rename_dims(program(), names), names) == program()
