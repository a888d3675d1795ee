"""Windows of field arrays, as views of a padded copy: what convolutions and pooling read."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mirage_py.ugraph.building.windows import Window
from mirage_py.ugraph.field import FieldArray
from mirage_py.ugraph.field.values import Residues


def windowed(array: FieldArray, along: Mapping[int, Window], fill: FieldArray) -> FieldArray:
    """The array with windows along some axes, ``fill`` (a scalar) in the padding.

    As in mirage_py.ugraph.building.windows: an axis becomes that of the windows' places, and the
    positions inside of them are further axes at the end.
    """
    p = _windowed(array.p, along, int(fill.p))
    if array.q is None or fill.q is None:
        return FieldArray(p, None)
    return FieldArray(p, _windowed(array.q, along, int(fill.q)))


def _windowed(part: Residues, along: Mapping[int, Window], fill: int) -> Residues:
    shape, inside, outside = list(part.shape), [slice(None)] * part.ndim, [slice(None)] * part.ndim
    strides: dict[int, tuple[int, int]] = {}
    for axis, window in along.items():
        size = part.shape[axis]
        first, step, spread = window.before, window.stride, 1
        if window.upsampled:
            # A transposed convolution: zeros between the elements, and the kernel backwards.
            first = (window.extent - 1) * window.dilation - window.before
            step, spread = 1, window.stride
        reach = (window.count - 1) * step + (window.extent - 1) * window.dilation + 1
        # Element i of the axis is at first + i * spread of what the windows read.
        low = max(0, -(first // spread))
        high = min(size, (reach - 1 - first) // spread + 1)
        shape[axis] = reach
        inside[axis] = slice(low, max(low, high))
        start = first + low * spread
        outside[axis] = slice(start, start + max(0, high - low) * spread, spread)
        strides[axis] = step, window.dilation
    whole = np.full(shape, fill, dtype=np.int64)
    whole[tuple(outside)] = part[tuple(inside)]
    extents, steps = list(shape), list(whole.strides)
    for axis, window in along.items():
        step, dilation = strides[axis]
        extents[axis], steps[axis] = window.count, whole.strides[axis] * step
        extents.append(window.extent)
        steps.append(whole.strides[axis] * dilation)
    view = as_strided(whole, extents, steps, writeable=False)
    turned = [axis for axis, window in enumerate(along.values()) if window.upsampled]
    if turned:
        view = np.flip(view, tuple(part.ndim + axis for axis in turned))
    assert view.size == prod(extents)
    return view
