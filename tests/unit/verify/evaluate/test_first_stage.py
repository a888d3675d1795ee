"""Programs with small outputs in two stages: the same values, from windows of fewer elements."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from mirage_py.frontend.spec import parse
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.evaluate.first_stage import first_stage
from mirage_py.verify.numerical_check import input_changes, numerical_check
from mirage_py.verify.numerical_check.input_sets import drawn_sets
from mirage_py.verify.numerical_check.numerical_check import reference

LOSS = """
N = 64, V = 4096
X[N, V], W[N] : bf16
let L[n] = log(sum[v](exp(X[n, v]))) - mean[v](X[n, v])
Y[0] : f32 = sum[n](L[n] * W[n]) / sum[n](W[n])
"""
COUNT = "N = 64, V = 4096\nX[N, V] : f32\nY[0] : f32 = sum[n](max[v](X[n, v] > 0))"
TWO = """
N = 64, V = 4096
X[N, V] : f32
let S = max[n](max[v](X[n, v]))
Y[n] = S + sum[v](X[n, v])
"""


@pytest.mark.parametrize("source", [LOSS, COUNT])
def test_both_stages_give_what_one_does(source: str, monkeypatch: pytest.MonkeyPatch):
    program = parse(source)
    (inputs,) = drawn_sets(program, 0, ("random",))
    whole = reference(program, inputs.arrays)
    stages = []

    def staged(safe: Program) -> Program | None:
        stages.append(first_stage(safe, most=150_000, small=1000))
        return stages[-1]

    monkeypatch.setattr(numerical_check, "first_stage", staged)
    for threads in (1, 3):
        found = reference(program, inputs.arrays, max_work=1.0, threads=threads)
        assert found.share == 1.0
        np.testing.assert_allclose(found["Y"], whole["Y"], rtol=1e-13)
        np.testing.assert_allclose(found.errors["Y"], whole.errors["Y"], rtol=1e-9)
    assert all(stage is not None for stage in stages)
    assert {o.tensor.shape for o in stages[0].outputs} == {(64,)}


def test_it_is_for_small_outputs_of_large_values():
    loss, two = parse(LOSS), parse(TWO)
    assert first_stage(loss) is None  # as a whole it is small
    assert first_stage(loss, most=3000, small=1000) is None  # a row is not
    assert first_stage(two, most=150_000, small=50) is None  # an output is large
    whole = parse("N = 64, V = 4096\nX[N, V] : f32\nY[0] = sum[n, v](X[n, v])")
    assert first_stage(whole, most=150_000, small=1000) is None  # a number has no windows


def test_levels_of_inputs_are_found_in_a_part(monkeypatch: pytest.MonkeyPatch):
    program = parse("N = 64, V = 4096\nX[N, V] : f32\nY[0] = sum[n](sum[v](X[n, v]^2)^2)")
    sets = ("large", "outliers", "logits")
    whole = [s.arrays["X"].max() for s in drawn_sets(program, 0, sets)]
    stage = partial(first_stage, most=150_000, small=1000)
    monkeypatch.setattr(input_changes, "first_stage", lambda p, *_: stage(p))
    part = [s.arrays["X"].max() for s in drawn_sets(program, 0, sets)]
    assert part[0] >= whole[0] > 1e3
    assert part[1:] == whole[1:]
