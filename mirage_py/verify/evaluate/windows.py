"""Windows of a program's outputs that are small enough to be evaluated at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

import numpy as np

from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.evaluate.work import FLOAT_PRICES, peak_elements, program_work

# A dimension to its interval: what `evaluate_at` takes.
Window = dict[str, tuple[int, int]]

# Of float64, so 128 MiB; a few arrays of this size live at the same time.
MAX_ELEMENTS = 1 << 24
_MOST_ELEMENTS_AT_A_TIME = 1 << 25
# Of which a few lie in a core's cache, where arithmetic is several times faster.
_CACHED_ELEMENTS = 1 << 17
# How much more work in all is worth that.
_WORTH = 1.25
# Smaller where only some are evaluated, so that they are spread more widely.
_SAMPLED_ELEMENTS = 1 << 19


def windows(program: Program, max_elements: int = MAX_ELEMENTS) -> Iterator[Window]:
    """Windows that cover the outputs, none of which needs a larger array than that if possible.

    Only dimensions that all outputs have are cut. What does not depend on a dimension that is cut
    is evaluated again in every window, so those are cut that repeat the least. Windows are smaller
    than they must be where that costs little.
    """
    yield from _tiled(program, _window_extents(program, max_elements))


def first_window(program: Program, max_elements: int = MAX_ELEMENTS) -> Window:
    """The window at the origin."""
    return next(windows(program, max_elements))


def affordable_windows(program: Program, max_work: float) -> list[Window]:
    """All windows if evaluating them in floats takes no more element operations than ``max_work``.

    Otherwise as many smaller ones as that allows, at least one. In the order in which to evaluate
    them where there may be no time for all: the first, the last, and the others as drawn at random,
    always the same.
    """
    extents = _window_extents(program, MAX_ELEMENTS)
    work = _total_work(program, extents)
    if work > max_work:
        extents = _window_extents(program, _SAMPLED_ELEMENTS)
        work = _total_work(program, extents)
    every = list(_tiled(program, extents))
    count = max(1, int(len(every) * min(1.0, max_work / work)))
    drawn = np.random.default_rng(0).permutation(len(every))
    order = dict.fromkeys([0, len(every) - 1, *(int(n) for n in drawn)])
    return [every[n] for n in list(order)[:count]]


def at_a_time(program: Program, window: Window, threads: int) -> int:
    """How many of such windows to evaluate at the same time, for the memory they take."""
    peak = peak_elements(program, {d: stop - start for d, (start, stop) in window.items()})
    return max(1, min(threads, _MOST_ELEMENTS_AT_A_TIME // max(1, peak)))


def _tiled(program: Program, extents: dict[str, int]) -> Iterator[Window]:
    starts = [range(0, program.sizes[d], step) for d, step in extents.items()]
    for place in product(*starts):
        yield {
            d: (start, min(start + extents[d], program.sizes[d]))
            for d, start in zip(extents, place, strict=True)
        }


def _window_extents(program: Program, max_elements: int) -> dict[str, int]:
    first, *others = (program.nodes[o.node].dims for o in program.outputs)
    common = [d for d in first if all(d in dims for dims in others)]
    extents = {d: program.sizes[d] for d in common}
    found: dict[str, int] = {}
    peak = peak_elements(program, extents)
    least = peak_elements(program, dict.fromkeys(common, 1))
    work = _total_work(program, extents)
    while peak > max(least, _CACHED_ELEMENTS):
        halves = [{**extents, d: (n + 1) // 2} for d, n in extents.items() if n > 1]
        # A half with half the peak may repeat as much again, and is then no better than none.
        extents = min(halves, key=lambda e: _total_work(program, e) * peak_elements(program, e))
        more, smaller = _total_work(program, extents), peak_elements(program, extents)
        if peak > max_elements:
            work = more
        elif more > _WORTH * work:
            break
        # Two arrays of one size may take two cuts.
        if smaller < peak:
            found, peak = extents, smaller
    return {d: n for d, n in found.items() if n < program.sizes[d]}


def _total_work(program: Program, extents: dict[str, int]) -> float:
    """Of all windows of these extents."""
    count = prod(-(-program.sizes[d] // n) for d, n in extents.items())
    return count * program_work(program, extents, prices=FLOAT_PRICES)
