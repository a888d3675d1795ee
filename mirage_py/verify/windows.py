"""Cutting a program's outputs into windows that are small enough to be evaluated at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from mirage_py.ugraph.program import Program
from mirage_py.verify.work import peak_elements

# A dimension to its interval: what `evaluate_at` takes.
Window = dict[str, tuple[int, int]]

# Of float64, so 128 MiB; a few arrays of this size live at the same time.
MAX_ELEMENTS = 1 << 24


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
