"""Faults of large outputs of which a small part is compared: what repeats with the tiles, what is
at an edge, and what is at wrong addresses is found all the same.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mirage_py.frontend.spec import parse
from mirage_py.ugraph.ir.dtypes import F16
from mirage_py.verify.evaluate.element_types import round_to
from mirage_py.verify.evaluate.windows import affordable_windows, scattered
from mirage_py.verify.numerical_check.input_sets import drawn_sets
from mirage_py.verify.numerical_check.numerical_check import judge, reference

N = 2048
NORM = f"""B = {N}, D = {N}
X[B, D], G[D] : f16
Y[b, d] = X[b, d] * G[d] / sqrt(mean[d](X[b, d]^2) + 1e-6)"""
PRODUCT = f"""B = {N}, D = {N}, K = 32
X[B, K], W[K, D] : f16
Y[b, d] = sum[k](X[b, k] * W[k, d])"""
# As of 2^24 elements when a million is compared.
MOST_ELEMENTS = N * N // 16


def norm(arrays, shift: int = 0):
    """With ``shift`` the rows begin that much too late, each more than the one before."""
    x, g = arrays["X"], arrays["G"]
    if shift:
        places = np.arange(N)[:, None] * (N + shift) + np.arange(N)
        x = x.reshape(-1)[places % x.size]
    return round_to(x * g / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-6), F16)


def product(arrays, shift: int = 0):
    x, w = arrays["X"], arrays["W"]
    if shift:
        places = np.arange(w.shape[0])[:, None] * (N + shift) + np.arange(N)
        w = w.reshape(-1)[places % w.size]
    return round_to(x @ w, F16)


CASES = {"norm": (NORM, norm), "product": (PRODUCT, product)}


@pytest.fixture(scope="module", params=sorted(CASES))
def case(request: pytest.FixtureRequest):
    text, compute = CASES[request.param]
    program = parse(text)
    (inputs,) = drawn_sets(program, 0, ["random"])
    known = reference(program, inputs.inputs, max_elements=MOST_ELEMENTS, seed=3)
    assert 0.01 < known.share <= 1 / 16
    return program, known, inputs.arrays, compute, compute(inputs.arrays)


def passes(case, y: np.ndarray) -> bool:
    program, known, *_ = case
    return judge(program, known, {"Y": y}).passed


def test_right_results_pass(case):
    program, known, *_, right = case
    found = judge(program, known, {"Y": right})
    assert found.passed, found.reason
    assert found.elements == N * N
    assert found.evaluated == found.compared == known.places["Y"].flat.size
    assert known.share == found.evaluated / found.elements
    # Of the whole rows that the norm is over, or of the elements of rows that there are.
    assert found.telling > 0.9 * found.compared


@pytest.mark.parametrize("tile", [(16, 16), (1, 1024), (32, 256), (64, 64), (128, 128)])
def test_one_wrong_element_in_each_tile(case, tile: tuple[int, int]):
    right = case[-1]
    rows, columns = tile
    draw = np.random.default_rng(rows)
    drawn = [(int(draw.integers(rows)), int(draw.integers(columns))) for _ in range(6)]
    for row, column in [(0, 0), (rows - 1, columns - 1), (rows - 1, 0), *drawn]:
        y = right.copy()
        y[row::rows, column::columns] += 1.0
        assert not passes(case, y), (row, column)


BLOCKS: dict[str, Callable[[np.ndarray], object]] = {
    "first block": lambda y: y[:16, :16].fill(0),
    "last block": lambda y: y[-16:, -16:].fill(0),
    "last element": lambda y: y[-1:, -1:].fill(9),
    "first row": lambda y: y[0].fill(0),
    "last row": lambda y: y[-1].fill(0),
    "first column": lambda y: y[:, 0].fill(0),
    "last column": lambda y: y[:, -1].fill(0),
    "row ends from the next row": lambda y: np.copyto(y[:-1, -1], y[1:, 0]),
    "one place too far": lambda y: np.copyto(y, np.roll(y, 1)),
    "rows exchanged in pairs": lambda y: np.copyto(y, y.reshape(-1, 2, N)[:, ::-1].reshape(N, N)),
    "blocks of rows exchanged": lambda y: np.copyto(y, np.roll(y, 128, axis=0)),
    "not written": lambda y: y[N // 2 :].fill(np.nan),
}


@pytest.mark.parametrize("fault", BLOCKS)
def test_wrong_edges_and_places(case, fault: str):
    y = case[-1].copy()
    BLOCKS[fault](y)
    assert not passes(case, y)


@pytest.mark.parametrize("shift", [1, -1, 8, 64])
def test_a_wrong_stride_of_an_input(case, shift: int):
    *_, arrays, compute, _ = case
    assert not passes(case, compute(arrays, shift))


def test_the_first_wrong_element_is_named(case):
    program, known, *_, right = case
    row, column = divmod(int(np.sort(known.places["Y"].flat)[1000]), N)
    y = right.copy()
    y[row, column] += 1.0
    assert f"Y[{row}, {column}] = " in str(judge(program, known, {"Y": y}).reason)


def positions(points, dim: str, size: int) -> np.ndarray:
    where = points.get(dim, (0, size))
    return np.arange(*where) if isinstance(where, tuple) else where


def test_few_windows_have_every_position_of_a_tile_and_both_ends():
    program = parse(NORM)
    for seed in range(8):
        chosen = affordable_windows(program, 1e9, MOST_ELEMENTS, seed)
        count = np.zeros(N, int)
        for points in scattered(program, chosen, seed):
            count[positions(points, "b", N)] += 1
        assert count.max() == count[0] == count[-1] == 1
        assert (count.reshape(-1, 128).sum(axis=0) == 1).all()
        # And so in many places of the whole.
        assert count.reshape(16, -1).sum(axis=1).min() > 0
        assert count.sum() * N == MOST_ELEMENTS


def test_every_element_lies_in_one_window_if_all_are_taken():
    program = parse(f"B = 1000, D = {N}\nX[B, D] : f16\nY[b, d] = X[b, d]")
    count = np.zeros((1000, N), int)
    windows = [
        {"b": (b, min(b + 300, 1000)), "d": (d, d + 512)}
        for b in range(0, 1000, 300)
        for d in range(0, N, 512)
    ]
    order = [windows[0], windows[-1], *windows[1:-1]]
    for points in scattered(program, order[:-1], 5):
        count[np.ix_(positions(points, "b", 1000), positions(points, "d", N))] += 1
    assert (np.unique(count) == [0, 1]).all()
    assert (count == 0).sum() in (300 * 512, 100 * 512)


def test_windows_lie_in_every_block_of_a_large_attention():
    """Of 2 x 32 heads and 2048 rows, where no set is compared as a whole."""
    program = parse(
        """H = 64, T = 2048, D = 128
        Q[H, T, D], K[H, T, D], V[H, T, D] : bf16
        let Z[h, t, s] = sum[d](Q[h, t, d] * K[h, s, d])
        O[h, t, e] = sum[s](softmax[s](where(s <= t, Z[h, t, s], -inf)) * V[h, s, e])"""
    )
    hit = np.zeros((64, 2048), bool)
    for seed in range(14):
        share, most = (1.0, np.inf) if seed == 0 else (1 / 16, 1 << 20)
        chosen = affordable_windows(program, share * 1e9, most, seed)
        for points in scattered(program, chosen, seed):
            heads, rows = positions(points, "h", 64), positions(points, "t", 2048)
            hit[np.ix_(heads, rows)] = True
        if seed == 0:
            assert hit.reshape(64, 8, 256).any(axis=2).all()
    assert hit.reshape(64, 16, 128).any(axis=2).mean() > 0.99
    assert hit.reshape(64, 64, 32).any(axis=2).mean() > 0.9
    assert hit.mean() < 0.6
