"""Inputs larger than a period: read in parts, they are what they are as a whole."""

from __future__ import annotations

import numpy as np
import pytest

from mirage_py.frontend.spec import parse
from mirage_py.ugraph.ir.dtypes import dtype
from mirage_py.verify.evaluate.element_types import round_to
from mirage_py.verify.numerical_check import periodic_input
from mirage_py.verify.numerical_check.input_sets import SET_NAMES, drawn_sets
from mirage_py.verify.numerical_check.periodic_input import PERIOD

ROWS, COLUMNS = 110, 64
SHORT = 4099
TEXT = f"""B = {ROWS}, S = {COLUMNS}
X[B, S], R[B, S] : {{0}}
G[S] : {{0}}
M[B, S] : bool
A[B, S] : {{0}}
L[B] : i32
Y[b, s] = softmax[s](where(M[b, s] & (s < L[b]), (X[b, s] - R[b, s]) * G[s], -1e4) + A[b, s])
"""
PARTS = (
    (slice(3, 9), slice(None)),
    (slice(None), slice(50, 64)),
    (slice(60, 70), 17),
    (np.arange(0, ROWS, 7)[:, None], np.arange(0, COLUMNS, 5)),
)


@pytest.fixture
def short_periods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periodic_input, "PERIOD", SHORT)


def sets(kind: str):
    program = parse(TEXT.format(kind))
    return program, {s.name: s for s in drawn_sets(program, 0, SET_NAMES)}


@pytest.mark.usefixtures("short_periods")
@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_a_part_of_an_input_is_that_part_of_the_whole(kind: str):
    program, found = sets(kind)
    for name, inputs in found.items():
        for t in program.inputs:
            whole = inputs.arrays[t.name]
            assert whole.shape == t.shape
            if t.dtype.is_float:
                assert np.array_equal(round_to(whole, dtype(kind)), whole), name
            if len(t.shape) == 2:
                for part in PARTS:
                    assert np.array_equal(inputs.inputs[t.name].read(part), whole[part]), name


@pytest.mark.usefixtures("short_periods")
def test_large_sets_are_what_small_ones_are():
    _, found = sets("f32")
    of = {name: s.arrays for name, s in found.items()}
    x = of["random"]["X"]
    assert np.array_equal(x.reshape(-1)[SHORT:], x.reshape(-1)[: x.size - SHORT])
    assert SHORT - 10 < len(np.unique(x)) <= SHORT
    assert np.array_equal(of["huge_row"]["X"][1:], x[1:])
    assert np.abs(of["huge_row"]["X"][0]).min() > np.abs(x[0]).min() * 1e3
    assert np.array_equal(
        of["alternating"]["X"], np.abs(x) * np.where(np.arange(COLUMNS) % 2, -1, 1)
    )
    means = of["far_rows"]["X"].mean(axis=1)
    assert np.array_equal(np.sign(means), np.where(np.arange(ROWS) % 2 == 0, 1, -1))
    assert np.abs(np.abs(means[8:]) - np.abs(means[:-8])).max() < 1.0
    large = np.abs(of["outliers"]["X"]) > 100
    assert large.all(axis=0).sum() == large.any(axis=0).sum() == 1
    shown = of["masked_rows"]["M"]
    assert not shown[::3].any()
    assert shown[1::3].all()
    assert 0.4 < shown[2::3].mean() < 0.6
    hidden = np.arange(ROWS)[:, None] * COLUMNS // ROWS
    assert np.array_equal(of["left_padding"]["M"] == 1.0, np.arange(COLUMNS) >= hidden)
    assert np.array_equal(of["right_padding"]["A"] == 0.0, np.arange(COLUMNS) < COLUMNS - hidden)
    assert not of["zeros"]["X"].any()


def test_no_row_and_no_tile_repeats_within_a_large_input():
    """What is read at an address that is off by a row, or some tiles, is something else."""
    assert all(PERIOD % n for n in range(2, 1 << 11))
    program = parse("B = 1100, S = 1024\nX[B, S] : f32\nY[b, s] = X[b, s]")
    (found,) = drawn_sets(program, 0, ["random"])
    x = found.inputs["X"]
    assert x.table.size == PERIOD < x.dense().size
    flat = x.dense().reshape(-1)
    for stride in (1, 8, 16, 64, 128, 1024, 16 * 1024, 128 * 1024, 1000 * 1024):
        assert (flat[stride:] != flat[:-stride]).mean() > 0.999
