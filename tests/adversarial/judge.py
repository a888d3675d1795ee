"""Whether float64 tells a µGraph from its program: by a machine that the verifier does not use."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from adversarial.machine import Array, CrashError, run_program, run_ugraph

from mirage_py.ugraph.dtypes import BOOL
from mirage_py.ugraph.program import Program
from mirage_py.ugraph.ugraph import UGraph

# Draws and how large the inputs are: an epsilon shows where they are small.
SCALES = (1.0, 1.0, 0.01)
_TOLERANCE = 1e-9


SAME, OVERFLOWS, DIFFERENT = "same", "overflows", "different"


def verdict(program: Program, ugraph: UGraph, *, seed: int = 0) -> str:
    """SAME or DIFFERENT on random inputs, in two orders of the blocks.

    OVERFLOWS where nothing differs but what is not finite, and nothing at all once other numbers
    shift the exponents: wrong in floats, right in real numbers.
    """
    worst = SAME
    for number, scale in enumerate(SCALES):
        inputs = random_inputs(program, seed * len(SCALES) + number, scale)
        expected = run_program(program, inputs)
        for backwards in (False, True):
            found = _run(ugraph, inputs, backwards, None)
            if not _close(expected, found):
                shifted = [_run(ugraph, inputs, backwards, shift) for shift in (0.0, 0.5)]
                if not _is_infinite(expected, found) or not all(
                    _close(expected, s) for s in shifted
                ):
                    return DIFFERENT
                worst = OVERFLOWS
    return worst


def differs(program: Program, ugraph: UGraph, *, seed: int = 0) -> bool:
    """Whether a kernel that does just this gives other results."""
    return verdict(program, ugraph, seed=seed) != SAME


def _run(
    ugraph: UGraph, inputs: Mapping[str, Array], backwards: bool, shift: float | None
) -> Mapping[str, Array]:
    try:
        return run_ugraph(ugraph, inputs, backwards=backwards, shift=shift)
    except CrashError:
        return {}


def _close(expected: Mapping[str, Array], found: Mapping[str, Array]) -> bool:
    return all(close(value, found.get(name)) for name, value in expected.items())


def _is_infinite(expected: Mapping[str, Array], found: Mapping[str, Array]) -> bool:
    """Whether they are close in all elements that are finite."""
    if not found:
        return False
    masked = {n: np.where(np.isfinite(x), x, expected[n]) for n, x in found.items()}
    return _close(expected, masked)


def random_inputs(program: Program, seed: int, scale: float) -> Mapping[str, Array]:
    """Normal numbers; truth values are fair; whole numbers are positions of some dimension."""
    draw = np.random.default_rng(seed)
    longest = max(program.sizes.values())
    inputs: dict[str, Array] = {}
    for tensor in program.inputs:
        if tensor.dtype == BOOL:
            values = draw.integers(2, size=tensor.shape).astype(np.float64)
        elif not tensor.dtype.is_float:
            values = draw.integers(longest, size=tensor.shape).astype(np.float64)
        else:
            values = draw.normal(size=tensor.shape) * scale
        inputs[tensor.name] = values
    return inputs


def close(expected: Array, found: Array | None) -> bool:
    """Equal to rounding: relative to the element and, for what cancels, to the largest one."""
    if found is None or found.shape != expected.shape:
        return False
    finite = np.isfinite(expected)
    largest = float(np.abs(expected[finite]).max(initial=0.0))
    return bool(
        np.allclose(
            found, expected, rtol=_TOLERANCE, atol=_TOLERANCE * largest * 1e-3, equal_nan=True
        )
    )
