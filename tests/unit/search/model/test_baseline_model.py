from __future__ import annotations

from mirage_py.frontend.spec import parse
from mirage_py.search.model.baseline_model import eager_model_us
from mirage_py.targets import target

H200 = target("h200")
SIZES = "B = 2048, N = 4096\nX[B, N] : f16\n"


def test_a_program_without_operators_is_a_copy():
    copied = eager_model_us(parse(SIZES + "Y[b, n] = X[b, n]"), H200)
    squared = eager_model_us(parse(SIZES + "Y[b, n] = X[b, n]^2"), H200)
    assert copied == squared > 0.0


def test_an_output_that_an_operator_makes_is_written_by_it():
    once = eager_model_us(parse(SIZES + "Y[b, n] = exp(X[b, n])"), H200)
    both = eager_model_us(parse(SIZES + "Y[b, n] = exp(X[b, n])\nZ[b, n] = X[b, n]"), H200)
    assert both == 2 * once
