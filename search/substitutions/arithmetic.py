"""Expressions over a finite field, on small arrays: what fingerprints of graphs are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirage_py.axioms.substitutions.expression import Attr

Array = NDArray[np.int64]
# A Mersenne prime: products of residues stay within int64.
PRIME = 2**31 - 1
# The order of elements: that of their products with this, from -PRIME / 2 to PRIME / 2; 0 is 0.
_KEY = 1103515245


def applied(
    op: str, attrs: Sequence[Attr], of: Sequence[Array], first: int, sizes: Mapping[str, int]
) -> Any:
    """The value of an operator; ``first`` is how long the first part of a split axis is."""
    match op:
        case "add":
            return (of[0] + of[1]) % PRIME
        case "mul":
            return of[0] * of[1] % PRIME
        case "relu":
            return np.where(_order(of[0]) > 0, of[0], 0)
        case "matmul":
            return (of[0][:, :, None] * of[1][None] % PRIME).sum(1) % PRIME
        case "transpose":
            return of[0].T
        case "concat":
            return np.concatenate(of, int(str(attrs[0])))
        case "split":
            return _part(of[0], int(str(attrs[0])), int(str(attrs[1])), first)
        case "conv":
            return convolved(of[0], of[1], int(str(attrs[1])))
        case "enlarge":
            margin = sizes[str(attrs[0])]
            return np.pad(of[0], ((0, 0), (0, 0), (margin, margin)))
    windows = _windows(of[0], sizes[str(attrs[1])])
    if op == "avg_pool":
        return windows.sum(3) % PRIME * pow(windows.shape[3], -1, PRIME) % PRIME
    # A tap in the padding counts as the middle one.
    middle = windows.shape[3] // 2
    inside = _windows(np.ones_like(of[0]), windows.shape[3]) > 0
    windows = np.where(inside, windows, windows[..., middle : middle + 1])
    chosen = _order(windows).argmax(3)[..., None]
    return np.take_along_axis(windows, chosen, 3)[..., 0]


def _order(of: Array) -> Any:
    keys: Any = of * _KEY % PRIME
    return np.where(keys > PRIME // 2, keys - PRIME, keys)


def convolved(image: Array, kernel: Array, groups: int) -> Array:
    """A convolution with stride 1 and padding by half of an odd kernel."""
    results = []
    for x, k in zip(np.split(image, groups, 1), np.split(kernel, groups, 0), strict=True):
        windows = _windows(x, k.shape[2])
        results.append((windows[:, None] * k[None, :, :, None] % PRIME).sum((2, 4)) % PRIME)
    return np.concatenate(results, 1) if groups > 1 else results[0]


def _windows(image: Array, taps: int) -> Array:
    half = taps // 2
    wide: Any = np.pad(image, ((0, 0), (0, 0), (half, half)))
    return np.lib.stride_tricks.sliding_window_view(wide, taps, 2)


def _part(x: Array, axis: int, index: int, first: int) -> Array:
    where = slice(0, first) if index == 0 else slice(first, None)
    return x[(slice(None),) * axis + (where,)]
