"""The judge: float64 comparison of a µGraph with its program, by an independent interpreter.

On random inputs and on structured ones (``structured_inputs``) every element has to agree where the
program has a value; elsewhere anything goes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from adversarial.machine import Array, CrashError, run_program, run_ugraph
from adversarial.structured_inputs import structured_inputs

from mirage_py.ugraph.ir.dtypes import BOOL, DType
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph

# Draws and how large the inputs are: an epsilon shows where they are small.
SCALES = (1.0, 1.0, 0.01)
_TOLERANCE = 1e-9


# Of programs whose results are what rounding loses.
_ROUNDED = 2.0**-4
_LOSS, _DRAWS_OF_LOSSES = 0.2, 5
# Differences of numbers that are alike lose digits: a root of one has half of them.
_STRUCTURED = 1e-6

SAME, OVERFLOWS, DIFFERENT = "same", "overflows", "different"


def verdict(program: Program, ugraph: UGraph, *, seed: int = 0, rounds: bool = True) -> str:
    """SAME or DIFFERENT, in two orders of the blocks.

    OVERFLOWS where nothing differs but what is not finite, and nothing at all once other numbers
    shift the exponents: wrong in floats, right in real numbers. Where the program computes what a
    cast to fewer digits loses, and ``rounds``, both round.
    """
    judge = _Judge(program, ugraph, rounds and _computes_losses(program, seed))
    worst = SAME
    for number, scale in enumerate(SCALES):
        inputs = random_inputs(program, seed * len(SCALES) + number, scale)
        worst = max(worst, judge.on(inputs, _TOLERANCE), key=_ORDER.index)
        if worst == DIFFERENT:
            return worst
    for _, inputs in structured_inputs(program, seed):
        worst = max(worst, judge.on(inputs, _STRUCTURED), key=_ORDER.index)
        if worst == DIFFERENT:
            return worst
    return worst


def differs(program: Program, ugraph: UGraph, *, seed: int = 0) -> bool:
    """Whether a kernel that does just this gives other results."""
    return verdict(program, ugraph, seed=seed) != SAME


_ORDER = (SAME, OVERFLOWS, DIFFERENT)


class _Judge:
    def __init__(self, program: Program, ugraph: UGraph, rounds: bool) -> None:
        self.program, self.ugraph, self.rounds = program, ugraph, rounds

    def on(self, inputs: Mapping[str, Array], tolerance: float) -> str:
        expected = run_program(self.program, inputs, rounds=self.rounds)
        tolerance = _ROUNDED if self.rounds else tolerance
        worst = SAME
        for backwards in (False, True):
            found = self._run(inputs, backwards, None)
            if _close(expected, found, tolerance):
                continue
            shifted = [self._run(inputs, backwards, shift) for shift in (0.0, 0.5)]
            if not _is_infinite(expected, found, tolerance) or not all(
                _close(expected, s, tolerance) for s in shifted
            ):
                return DIFFERENT
            worst = OVERFLOWS
        return worst

    def _run(
        self, inputs: Mapping[str, Array], backwards: bool, shift: float | None
    ) -> Mapping[str, Array]:
        try:
            return run_ugraph(
                self.ugraph, inputs, backwards=backwards, shift=shift, rounds=self.rounds
            )
        except CrashError:
            return {}


def _computes_losses(program: Program, seed: int) -> bool:
    """Whether results are made of what casts to fewer digits lose, so that rounding decides them;
    otherwise a kernel may round elsewhere, or not at all.
    """
    casts = [n.attr for n in program.nodes if n.op == "cast"]
    if not any(isinstance(t, DType) and t.is_float and t.bytes < 4 for t in casts):
        return False
    shares = []
    for number in range(_DRAWS_OF_LOSSES):
        inputs = random_inputs(program, seed * _DRAWS_OF_LOSSES + number, 1.0)
        exact, rounded = (run_program(program, inputs, rounds=r) for r in (False, True))
        shares.append(max(_distance(exact[n], rounded[n]) for n in exact))
    return float(np.median(shares)) > _LOSS


def _distance(exact: Array, rounded: Array) -> float:
    finite = np.isfinite(exact) & np.isfinite(rounded)
    size = float(np.linalg.norm(rounded[finite]))
    away = float(np.linalg.norm((exact - rounded)[finite]))
    return away / size if size else 0.0


def _close(
    expected: Mapping[str, Array],
    found: Mapping[str, Array],
    tolerance: float,
) -> bool:
    return all(close(value, found.get(name), tolerance) for name, value in expected.items())


def _is_infinite(
    expected: Mapping[str, Array],
    found: Mapping[str, Array],
    tolerance: float,
) -> bool:
    """Whether they are close in all elements that are finite."""
    if not found:
        return False
    masked = {n: np.where(np.isfinite(x), x, expected[n]) for n, x in found.items()}
    return _close(expected, masked, tolerance)


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


def close(
    expected: Array,
    found: Array | None,
    tolerance: float = _TOLERANCE,
) -> bool:
    """Equal to rounding where the program has a value: relative to the element and, for what
    cancels, to the largest one.
    """
    if found is None or found.shape != expected.shape:
        return False
    finite = np.isfinite(expected)
    largest = float(np.abs(expected[finite]).max(initial=0.0))
    found = np.where(finite, found, expected)
    is_loose = tolerance >= _STRUCTURED
    largest = max(1.0, largest) if is_loose else largest
    share = 1.0 if is_loose else 1e-3
    return bool(
        np.allclose(
            found, expected, rtol=tolerance, atol=tolerance * largest * share, equal_nan=True
        )
    )
