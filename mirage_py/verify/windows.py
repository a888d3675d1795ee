"""Cutting a program's outputs into windows that are small enough to be evaluated at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from mirage_py.ugraph.program import Program
from mirage_py.verify.work import FLOAT_PRODUCT_COST, peak_elements, program_work

# A dimension to its interval: what `evaluate_at` takes.
Window = dict[str, tuple[int, int]]

# Of float64, so 128 MiB; a few arrays of this size live at the same time.
MAX_ELEMENTS = 1 << 24
# Smaller where only some are evaluated, so that they are spread more widely.
_SAMPLED_ELEMENTS = 1 << 21


def windows(program: Program, max_elements: int = MAX_ELEMENTS) -> Iterator[Window]:
    """Windows that cover the outputs, none of which needs a larger array than that if possible.

    Only dimensions that all outputs have are cut, the largest first.
    """
    extents = _window_extents(program, max_elements)
    starts = [range(0, program.sizes[d], step) for d, step in extents.items()]
    for place in product(*starts):
        yield {
            d: (start, min(start + extents[d], program.sizes[d]))
            for d, start in zip(extents, place, strict=True)
        }


def first_window(program: Program, max_elements: int = MAX_ELEMENTS) -> Window:
    """The window at the origin."""
    return next(windows(program, max_elements))


def affordable_windows(program: Program, max_work: float) -> list[Window]:
    """All windows if evaluating them in floats takes no more element operations than ``max_work``.

    Otherwise as many smaller ones as that allows: the first, the last, and others drawn at random,
    always the same. At least one.
    """
    if program_work(program, product_cost=FLOAT_PRODUCT_COST) <= max_work:
        return list(windows(program))
    every = list(windows(program, _SAMPLED_ELEMENTS))
    extents = {d: stop - start for d, (start, stop) in every[0].items()}
    one = program_work(program, extents, product_cost=FLOAT_PRODUCT_COST)
    count = min(len(every), max(1, int(max_work / one)))
    order = np.random.default_rng(0).permutation(len(every))
    chosen = dict.fromkeys([0, len(every) - 1, *(int(n) for n in order)])
    return [every[n] for n in sorted(list(chosen)[:count])]


def _window_extents(program: Program, max_elements: int) -> dict[str, int]:
    first, *others = (program.nodes[o.node].dims for o in program.outputs)
    common = [d for d in first if all(d in dims for dims in others)]
    extents: dict[str, int] = {}
    for d in sorted(common, key=lambda d: -program.sizes[d]):
        if peak_elements(program, extents) <= max_elements:
            break
        extents[d] = program.sizes[d]
        while extents[d] > 1 and peak_elements(program, extents) > max_elements:
            extents[d] = (extents[d] + 1) // 2
    return extents
