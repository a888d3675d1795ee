"""Windows of a program's outputs that are small enough to be evaluated at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.evaluate.work import FLOAT_PRICES, peak_elements, program_work

# A dimension to its interval: what `evaluate_at` takes.
Window = dict[str, tuple[int, int]]
# The same, or a list of positions.
Points = Mapping[str, tuple[int, int] | NDArray[np.int64]]

# Of float64, so 128 MiB; a few arrays of this size live at the same time.
MAX_ELEMENTS = 1 << 24
_MOST_ELEMENTS_AT_A_TIME = 1 << 25
# Of which a few lie in a core's cache, where arithmetic is several times faster.
_CACHED_ELEMENTS = 1 << 17
# How much more work in all is worth that.
_WORTH = 1.25
# Smaller where only some are evaluated, so that they are spread more widely.
_SAMPLED_ELEMENTS = 1 << 19
_SAMPLED_CACHED = 1 << 15
# Windows among which those with new positions are looked for, at least.
_LOOKED_AT = 1 << 13
# Evaluated however little may be: the first and the last.
LEAST_WINDOWS = 2
# Of kernels: every position in one of them is to be compared, of those of most kernels first.
_TILES = (16, 32, 64, 128, 256)


def windows(program: Program, max_elements: int = MAX_ELEMENTS) -> Iterator[Window]:
    """Windows that cover the outputs, none of which needs a larger array than that if possible.

    Only dimensions that all outputs have are cut. What does not depend on a dimension that is cut
    is evaluated again in every window, so those are cut that repeat the least. Windows are smaller
    than they must be where that costs little.
    """
    yield from _Tiled(program, _window_extents(program, max_elements))


def first_window(program: Program, max_elements: int = MAX_ELEMENTS) -> Window:
    """The window at the origin."""
    return next(windows(program, max_elements))


def affordable_windows(
    program: Program, max_work: float, max_elements: float = inf, seed: int = 0
) -> list[Window]:
    """All windows if evaluating them in floats takes no more element operations than ``max_work``,
    and the outputs have no more than ``max_elements``.

    Otherwise as many smaller ones as that allows, at least two, in the order in which to evaluate
    them where there may be no time for all: the first, the last, then windows drawn at random that
    have new positions modulo 16, 32, ... 256 along some dimension, then the others as drawn; the
    same for the same ``seed``. A fault at one place of every tile, or in the first or last of them,
    is so met by few windows.
    """
    extents = _window_extents(program, MAX_ELEMENTS)
    work = _total_work(program, extents)
    elements = sum(o.tensor.elements for o in program.outputs)
    is_sampled = work > max_work or elements > max_elements
    if is_sampled:
        extents = _window_extents(program, _SAMPLED_ELEMENTS, _SAMPLED_CACHED)
        work = _total_work(program, extents)
    every = _Tiled(program, extents)
    share = min(1.0, max_work / work, max_elements / elements) if is_sampled else 1.0
    wanted = max(LEAST_WINDOWS, int(len(every) * share))
    drawn = np.random.default_rng(seed).permutation(len(every))[: max(2 * wanted, _LOOKED_AT)]
    found = [every[0], every[-1], *(every[int(n)] for n in drawn)]
    return _new_positions_first(program.sizes, found)[:wanted]


def least_cost(program: Program) -> tuple[float, int]:
    """Of the smallest window there may be: its element operations, and its largest value."""
    extents = _window_extents(program, _SAMPLED_ELEMENTS, _SAMPLED_CACHED)
    work = program_work(program, extents, prices=FLOAT_PRICES)
    return work, peak_elements(program, extents)


def total_work(program: Program) -> float:
    """Element operations of all windows that cover the outputs."""
    return _total_work(program, _window_extents(program, MAX_ELEMENTS))


def _new_positions_first(sizes: Mapping[str, int], given: Sequence[Window]) -> list[Window]:
    """Each window once, the first two first; then those that have positions in a tile which none
    before them has, small tiles first.
    """
    chosen = {repr(w): w for w in given[:LEAST_WINDOWS]}
    for tile in _TILES:
        unseen = {d: np.ones(min(tile, sizes[d]), dtype=np.bool_) for d in given[0]}
        for window in (*chosen.values(), *given):
            places = {d: np.arange(*where) % tile for d, where in window.items()}
            if any(unseen[d][at].any() for d, at in places.items()):
                chosen.setdefault(repr(window), window)
                for d, at in places.items():
                    unseen[d][at] = False
            if not any(left.any() for left in unseen.values()):
                break
    return list({**chosen, **{repr(w): w for w in given}}.values())


class _Scattered(Sequence[Points]):
    """Positions are computed when a window is asked for: of many thousands of windows, each with
    positions of a long dimension, there may be time for a few.
    """

    def __init__(self, program: Program, chosen: Sequence[Window], seed: int) -> None:
        self._chosen = chosen
        covered = sum(prod(stop - start for start, stop in w.values()) for w in chosen)
        sizes = {d: program.sizes[d] for d in chosen[0]}
        sizes = {} if covered == prod(sizes.values()) else sizes
        self._moved = {d: _moved(n, np.random.default_rng(seed)) for d, n in sizes.items()}

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, number: Any) -> Any:
        window = self._chosen[number]
        return {d: np.sort(at[slice(*window[d])]) for d, at in self._moved.items()} or window


def scattered(program: Program, chosen: Sequence[Window], seed: int) -> Sequence[Points]:
    """Windows as they are where they cover the outputs; else with each position moved by a multiple
    of the largest tile, so that every window has elements of many tiles. No two have the same
    element then either, and the first and the last still have those of the ends.
    """
    return _Scattered(program, chosen, seed)


def _moved(size: int, draw: np.random.Generator) -> NDArray[np.int64]:
    """Where each position goes: to the same place of another tile, but for those at the ends."""
    found = np.arange(size)
    for place in range(min(size, _TILES[-1])):
        found[place :: _TILES[-1]] = draw.permutation(found[place :: _TILES[-1]])
    for position in (*range(size)[: _TILES[0]], *range(size)[-_TILES[0] :]):
        (held,) = np.flatnonzero(found == position)
        found[held], found[position] = found[position], position
    return found


def at_a_time(program: Program, window: Window, threads: int) -> int:
    """How many of such windows to evaluate at the same time, for the memory they take."""
    peak = peak_elements(program, {d: stop - start for d, (start, stop) in window.items()})
    return max(1, min(threads, _MOST_ELEMENTS_AT_A_TIME // max(1, peak)))


class _Tiled(Sequence[Window]):
    """All windows of these extents, the last dimension running fastest; each is made when it is
    asked for.
    """

    def __init__(self, program: Program, extents: dict[str, int]) -> None:
        self._steps = [(d, step, program.sizes[d]) for d, step in extents.items()]
        self._counts = [-(-size // step) for _, step, size in self._steps]

    def __len__(self) -> int:
        return prod(self._counts)

    def __getitem__(self, number: Any) -> Any:
        window: Window = {}
        number = range(len(self))[number]
        for (dim, step, size), count in zip(self._steps[::-1], self._counts[::-1], strict=True):
            number, place = divmod(number, count)
            window[dim] = (place * step, min((place + 1) * step, size))
        return dict(reversed(window.items()))


def _window_extents(
    program: Program, max_elements: int, cached: int = _CACHED_ELEMENTS
) -> dict[str, int]:
    first, *others = (program.nodes[o.node].dims for o in program.outputs)
    common = [d for d in first if all(d in dims for dims in others)]
    extents = {d: program.sizes[d] for d in common}
    found: dict[str, int] = {}
    peak = peak_elements(program, extents)
    least = peak_elements(program, dict.fromkeys(common, 1))
    work = _total_work(program, extents)
    while peak > max(least, cached):
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
