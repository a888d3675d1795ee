"""Windows cover the outputs, repeat little, and cost what the estimate says."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from nightly import NIGHTLY

from mirage_py.frontend.spec import parse
from mirage_py.verify.evaluate.windows import affordable_windows, windows
from mirage_py.verify.evaluate.work import FLOAT_PRICES, peak_elements, program_work

DECODING = """
B = {b}, G = 2, R = 8, S = {s}, D = 128
Q[B, G, R, D], K[B, G, S, D], V[B, G, S, D] : f16
let Z[b, g, r, s] = sum[d](Q[b, g, r, d] * K[b, g, s, d])
O[b, g, r, e] = sum[s](softmax[s](Z[b, g, r, s]) * V[b, g, s, e])
"""
CAUSAL = """
H = 32, T = 4096, D = 128
Q[H, T, D], K[H, T, D], V[H, T, D] : f16
let Z[h, t, s] = sum[d](Q[h, t, d] * K[h, s, d])
O[h, t, e] = sum[s](softmax[s](where(s <= t, Z[h, t, s], -inf)) * V[h, s, e])
"""
PLAIN = "M = 512, N = 512, K = 512\nX[M, K], W[K, N] : f16\nY[m, n] = sum[k](X[m, k] * W[k, n])"
FEW_ROWS = """
B = 32, G = 2, R = 8, S = 512, D = 64
Q[B, G, R, D], K[B, G, S, D] : f16
Z[b, g, r, s] = sum[d](Q[b, g, r, d] * K[b, g, s, d])
"""
# Takes the seconds of all threads, with BLAS held to one.
TIMER = """
import json, sys, time
import numpy as np
from mirage_py.frontend.spec import parse
from mirage_py.verify.numerical_check.numerical_check import reference

def seconds(program):
    draw = np.random.default_rng(0)
    arrays = {t.name: draw.normal(size=t.shape) for t in program.inputs}
    start = time.process_time()
    reference(program, arrays)
    return time.process_time() - start

programs = [parse(text) for text in json.load(sys.stdin)]
print(json.dumps([min(seconds(p) for _ in range(8)) for p in programs]))
"""


def total_work(program, found):
    return sum(
        program_work(program, {d: b - a for d, (a, b) in w.items()}, prices=FLOAT_PRICES)
        for w in found
    )


@pytest.mark.parametrize("sizes", [{"b": 16, "s": 8192}, {"b": 1, "s": 8192}, {"b": 3, "s": 100}])
def test_what_is_cut_repeats_no_softmax(sizes):
    """Cut along the largest dimension of the output, each would repeat all scores."""
    program = parse(DECODING.format(**sizes))
    found = list(windows(program))
    assert total_work(program, found) <= 1.3 * program_work(program, prices=FLOAT_PRICES)
    assert all("e" not in w for w in found)
    in_order = affordable_windows(program, 6e8)
    assert sorted(map(repr, in_order)) == sorted(map(repr, found))
    assert in_order[:2] == [found[0], found[-1]][: len(found)]


def test_nothing_is_cut_that_makes_no_array_smaller():
    """Keys and values of one head are read whole, whatever part of the output is wanted."""
    program = parse(DECODING.format(b=4, s=8192))
    assert next(windows(program, 1 << 10)) == {"b": (0, 1), "g": (0, 1)}


def test_every_element_lies_in_one_window():
    program = parse(DECODING.format(b=5, s=4096))
    count = np.zeros([program.sizes[d] for d in "bgre"], dtype=int)
    for window in windows(program, 1 << 16):
        count[tuple(slice(*window.get(d, (0, None))) for d in "bgre")] += 1
    assert (count == 1).all()


def test_of_what_is_too_large_heads_and_rows_are_sampled():
    program = parse(CAUSAL)
    found = affordable_windows(program, 6e8)
    assert total_work(program, found) <= 6e8
    assert len({w["h"] for w in found}) > 20
    points = {d: b - a for d, (a, b) in found[0].items()}
    assert peak_elements(program, points) <= 1 << 19
    assert found[0]["h"][0] == found[0]["t"][0] == 0
    assert (found[1]["h"][1], found[1]["t"][1]) == (32, 4096)


@pytest.mark.skipif(not NIGHTLY, reason="counts seconds of the processor; make nightly runs it")
def test_the_estimate_holds_for_few_rows_too():
    """Within a factor of three, a batched product of few rows against a plain one."""
    texts = [PLAIN, FEW_ROWS]
    run = subprocess.run(
        [sys.executable, "-c", TIMER],
        input=json.dumps(texts),
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    measured = json.loads(run.stdout)
    expected = [total_work(p, windows(p)) for p in map(parse, texts)]
    ratio = measured[1] / measured[0] / (expected[1] / expected[0])
    assert 1 / 3 < ratio < 3
