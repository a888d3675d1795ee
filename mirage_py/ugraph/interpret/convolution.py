"""Meaning of a library convolution: elements of the input gathered by window, times the weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.interpret.meaning import Meaning
from mirage_py.ugraph.ir.convolution import Convolution

A = TypeVar("A")


def convolve(spec: Convolution, x: A, weight: A, meaning: Meaning[A]) -> A:
    """The result, in the order of its axes."""
    counts = spec.counts
    of_input = spec.extents(0, meaning.shape(x))
    of_weight = spec.extents(1, meaning.shape(weight))
    along = [str(n) for n in range(spec.rank)]
    x = _canonical(x, spec.axes[0], of_input, ("n", "g", "c", *along), meaning)
    weight = _canonical(weight, spec.axes[1], of_weight, ("g", "o", "c", *along), meaning)
    places: list[NDArray[np.int64]] = []
    inside = np.ones((1,) * (2 * spec.rank), dtype=np.bool_)
    for n, axis in enumerate(along):
        place, truth = _elements(spec, n, of_input.get(axis, 1), of_weight.get(axis, 1))
        alone = [1] * (2 * spec.rank)
        alone[2 * n : 2 * n + 2] = place.shape
        places.append(place.reshape(alone))
        inside = inside & truth.reshape(alone)
    read = meaning.load(x, (slice(None), slice(None), slice(None), *places))
    batch, groups, channels = meaning.shape(x)[:3]
    out = meaning.shape(weight)[1]
    read = meaning.select(meaning.mask(np.broadcast_to(inside, meaning.shape(read)[3:])), read)
    kernel = meaning.shape(weight)[3:]
    spread = [e for count, extent in zip(counts, kernel, strict=True) for e in (count, extent)]
    left = meaning.reshape(read, (batch, groups, 1, channels, *spread))
    apart = [e for extent in kernel for e in (1, extent)]
    right = meaning.reshape(weight, (1, groups, out, channels, *apart))
    summed = (3, *(5 + 2 * n for n in range(spec.rank)))
    whole = meaning.contract(left, right, summed)
    known = {"n": batch, "g": groups, "o": out, **dict(zip(along, counts, strict=True))}
    value = meaning.reshape(whole, tuple(known.values()))
    letters = "".join(spec.axes[2])
    order = [p for p in known if p not in letters] + list(letters)
    value = meaning.transpose(value, [list(known).index(p) for p in order])
    shape = tuple(prod(known[p] for p in parts) for parts in spec.axes[2])
    return meaning.reshape(value, shape)


def _canonical(
    x: A,
    axes: Sequence[str],
    extents: Mapping[str, int],
    order: Sequence[str],
    meaning: Meaning[A],
) -> A:
    """The tensor with one axis for each part, in this order."""
    letters = "".join(axes)
    x = meaning.reshape(x, [extents[p] for p in letters])
    x = meaning.transpose(x, [letters.index(p) for p in order if p in letters])
    return meaning.reshape(x, [extents.get(p, 1) for p in order])


def _elements(
    spec: Convolution, axis: int, size: int, extent: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Which element a window reads at each place and position, and whether there is one."""
    stride, padding, dilation = (v[axis] for v in (spec.stride, spec.padding, spec.dilation))
    place, position = np.arange(spec.counts[axis])[:, None], np.arange(extent)[None, :]
    if spec.transposed:
        reached = place + padding - position * dilation
        element, truth = reached // stride, reached % stride == 0
    else:
        element = place * stride + position * dilation - padding
        truth = np.ones_like(element, dtype=np.bool_)
    truth = truth & (element >= 0) & (element < size)
    return np.where(truth, element, 0), truth
