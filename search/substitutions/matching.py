"""Matching of sizes: what the names in the types of a rule stand for in the types of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mirage_py.axioms.substitutions.expression import (
    SAME,
    UNIT,
    Axis,
    Type,
    axis_text,
    window_axis,
    window_parts,
)

# Names of sizes and what they stand for; windows by "window any" and the like.
Bound = Mapping[str, Axis]


def axis_fits(pattern: Axis, actual: Axis, bound: Bound) -> Iterator[Bound]:
    """Every way in which the names of an axis can be parts of an actual one."""
    if not pattern:
        if not actual:
            yield bound
        return
    first, rest = pattern[0], pattern[1:]
    known = value_of(first, bound)
    if known is not None:
        if actual[: len(known)] == known:
            yield from axis_fits(rest, actual[len(known) :], bound)
        return
    if window_parts(first) is not None:
        return
    for length in range(1, len(actual) - len(rest) + 1) if rest else (len(actual),):
        yield from axis_fits(rest, actual[length:], {**bound, first: actual[:length]})


def type_fits(pattern: Type, actual: Type, bound: Bound) -> Iterator[Bound]:
    """The same for all axes of a type."""
    if len(pattern) != len(actual):
        return
    if not pattern:
        yield bound
        return
    for found in axis_fits(pattern[0], actual[0], bound):
        yield from type_fits(pattern[1:], actual[1:], found)


def window_fits(pattern: str, actual: str, bound: Bound) -> Bound | None:
    """What is true of any window is true of those with padding by half, and of these with stride 1;
    all windows of one kind in a rule are one.
    """
    name = f"window {pattern}"
    if name in bound:
        return bound if bound[name] == (actual,) else None
    fits = pattern == actual or (pattern == SAME and actual == UNIT) or pattern == "any"
    return {**bound, name: (actual,)} if fits else None


def value_of(size: str, bound: Bound) -> Axis | None:
    """What a size stands for, if all that it is made of is known."""
    if size in bound:
        return bound[size]
    parts = window_parts(size)
    if parts is None:
        return None
    window, h, r = parts
    actual = bound.get(f"window {window}")
    at, taps = axis_value(h, bound), axis_value(r, bound)
    if actual is None or at is None:
        return None
    if taps is None or (window == SAME and actual[0] not in (SAME, UNIT)):
        return None
    return window_axis(actual[0], at, taps)


def axis_value(axis: Axis, bound: Bound) -> Axis | None:
    """What an axis stands for."""
    parts = [value_of(size, bound) for size in axis]
    known = [p for p in parts if p is not None]
    return sum(known, ()) if len(known) == len(parts) else None


__all__ = ["Bound", "axis_fits", "axis_text", "axis_value", "type_fits", "value_of", "window_fits"]
