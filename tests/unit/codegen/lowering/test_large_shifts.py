"""Shifts of all sizes, as a GPU computes them: it multiplies and subtracts with one rounding.

The texts of shifts and exponentials are evaluated in float64, where a product of two float32
numbers is exact, and rounded once.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from families import stabilize

from benchmarks.checks.differential_cases import one_kernel
from mirage_py.codegen.lowering.base_two_shifts import BaseTwoShifts, is_shift
from mirage_py.codegen.lowering.lowering import lowered
from mirage_py.frontend.spec import parse

TL = SimpleNamespace(where=np.where, abs=np.abs)


class Texts:
    """What is emitted for softmax of ``factor`` times a row, in Triton or C."""

    def __init__(self, factor, suffix):
        spec = f"M = 4, N = 8\nX[M, N] : f16\nlet e[m, n] = exp(X[m, n] * {factor})\n"
        program = parse(spec + "Y[m, n] = e[m, n] / sum[n](e[m, n])")
        graph = stabilize(one_kernel(program, {"m": 4}).ugraph)
        (typed,) = lowered(graph, graph.kernels).blocks
        self.nodes = typed.block.nodes
        self.shifts = BaseTwoShifts(typed.block, typed.dtypes, suffix=suffix)
        (self.shift,) = (n for n, node in enumerate(self.nodes) if is_shift(node))
        ((self.exponential, _),) = self.shifts.exponents.items()
        self.factor = np.float32(factor)

    def evaluate(self, text, **names):
        if self.shifts._suffix:
            condition, rest = text[text.index("(fabsf") :].split(" ? ", 1)
            chosen, other = rest.split(" : ", 1)
            text = text[: text.index("(fabsf")] + f"where{condition} , {chosen}, {other}"
            text = text.replace("f)", ")").replace("f,", ",").replace("f ,", " ,")
        names |= {"tl": TL, "where": np.where, "fabsf": np.abs}
        with np.errstate(invalid="ignore", over="ignore"):
            return np.float32(eval(text, names))

    def shift_of(self, x):
        """That of a tile."""
        top = np.float32(x.max() * np.float64(self.factor))
        found = self.evaluate(self.shifts.scaled(self.nodes[self.shift].args[0], "top"), top=top)
        return max(found, np.float32(self.shifts.start(self.shift)))

    def powers(self, x, shift):
        """The exponentials of a tile under a shift."""
        source, _ = self.shifts.exponents[self.exponential]
        z = "x" if source in self.shifts.factors else "z"
        text = self.shifts.exponent(self.exponential, lambda n: "m" if n == self.shift else z)
        scaled = np.float32(x * self.factor)
        return np.exp2(self.evaluate(text, x=x, z=np.float64(scaled), m=np.float64(shift)))


@pytest.mark.parametrize("suffix", ["", "f"], ids=["triton", "c"])
@pytest.mark.parametrize("factor", [1.0, 0.125])
@pytest.mark.parametrize(
    "level",
    [0.0, 3.0, 1e4, 1e7, 2.0**27, 2.0**28, 2.0**29, 3e9, 2e11, -2e11, 2.3e22, -2.3e22, 1e37],
)
def test_weights_are_those_of_a_softmax_however_large_logits_are(level, factor, suffix):
    texts = Texts(factor, suffix)
    draw = np.random.default_rng(1)
    x = np.float64(np.float32(draw.normal(size=64) * max(1.0, abs(level) / 8) + level))
    z = x * texts.factor
    powers = texts.powers(x, texts.shift_of(x))
    want = np.exp(z - z.max())
    assert np.isfinite(powers).all()
    np.testing.assert_allclose(powers / powers.sum(), want / want.sum(), atol=1e-6)


@pytest.mark.parametrize("suffix", ["", "f"], ids=["triton", "c"])
@pytest.mark.parametrize("levels", [
    (-1e12, 5.0, 1e12), (1e12, 5.0, -1e12), (-3e8, -2e8, 0.0), (2e8, 3e8, 2.6e8), (1.0, 2.0, 3.0),
])  # fmt: skip
def test_tiles_of_other_sizes_are_rescaled_to_one(levels, suffix):
    texts = Texts(1.0, suffix)
    draw = np.random.default_rng(2)
    tiles = [np.float64(np.float32(draw.normal(size=16) + level)) for level in levels]
    state, peak = 0.0, np.float32(texts.shifts.start(texts.shift))
    for x in tiles:
        old, peak = peak, max(peak, texts.shift_of(x))
        state = state * np.exp2(old - peak) + texts.powers(x, peak).sum()
    every = np.concatenate(tiles)
    found = texts.powers(every, peak) / state
    want = np.exp(every - every.max())
    np.testing.assert_allclose(found, want / want.sum(), atol=2e-6)


def test_what_is_added_to_a_logarithm_is_the_shift_itself():
    texts = Texts(1.0, "")
    for level in (-1e30, -1e9, -7.0, 0.0, 3.0, 2.0**28 - 16, 2.0**28, 1e20):
        kept = texts.shift_of(np.array([level]))
        text = texts.shifts.natural(texts.shift, "m")
        assert np.isclose(eval(text, {"tl": TL, "m": np.float64(kept)}), level, rtol=1e-6)
