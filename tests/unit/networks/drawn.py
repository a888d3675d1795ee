"""Small operands and attributes for every operator of networks, drawn at random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from mirage_py.networks.operators import elementwise

Drawn = tuple[Sequence[tuple[int, ...]], dict[str, Any]]
Rng = np.random.Generator


def _ints(rng: Rng, low: int, high: int, count: int) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(low, high + 1, count))


def _shape(rng: Rng, least: int = 1, most: int = 4) -> tuple[int, ...]:
    return _ints(rng, 1, 4, int(rng.integers(least, most + 1)))


def _axis(rng: Rng, shape: Sequence[int]) -> int:
    return int(rng.integers(len(shape)))


def _binary(rng: Rng) -> Drawn:
    shape = _shape(rng)
    other = tuple(n if rng.random() < 0.7 else 1 for n in shape)
    return (shape, other[int(rng.integers(len(shape))) :]), {}


def _matmul(rng: Rng) -> Drawn:
    stack = _ints(rng, 1, 3, int(rng.integers(3)))
    rows, shared, columns = _ints(rng, 1, 4, 3)
    other = tuple(n if rng.random() < 0.5 else 1 for n in stack)
    return ((*stack, rows, shared), (*other, shared, columns)), {}


def _bmm(rng: Rng) -> Drawn:
    stack, rows, shared, columns = _ints(rng, 1, 4, 4)
    return ((stack, rows, shared), (stack, shared, columns)), {}


def _transpose(rng: Rng) -> Drawn:
    shape = _shape(rng)
    return (shape,), {"perm": tuple(int(n) for n in rng.permutation(len(shape)))}


def _reshape(rng: Rng) -> Drawn:
    factors = _ints(rng, 1, 3, 5)
    cuts = sorted(_ints(rng, 0, 5, 4))
    old = prod(factors[:2]), prod(factors[2:4]), factors[4]
    order = rng.permutation(5)
    new = [
        prod(factors[i] for i in order[a:b]) for a, b in zip([0, *cuts], [*cuts, 5], strict=True)
    ]
    return (old,), {"shape": tuple(new)}


def _expand(rng: Rng) -> Drawn:
    wanted = _shape(rng)
    old = tuple(n if rng.random() < 0.5 else 1 for n in wanted)
    return (old[int(rng.integers(len(old))) :],), {"shape": wanted}


def _slice(rng: Rng) -> Drawn:
    shape = _ints(rng, 3, 6, 3)
    axis = _axis(rng, shape)
    start = int(rng.integers(shape[axis] - 1))
    stop = int(rng.integers(start + 1, shape[axis] + 1))
    return (shape,), {"axis": axis, "start": start, "stop": stop, "step": _ints(rng, 1, 3, 1)[0]}


def _split(rng: Rng) -> Drawn:
    shape, sizes = list(_shape(rng)), _ints(rng, 1, 3, int(rng.integers(1, 4)))
    axis = _axis(rng, shape)
    shape[axis] = sum(sizes)
    return (tuple(shape),), {"axis": axis, "sizes": sizes}


def _concat(rng: Rng) -> Drawn:
    shape = _shape(rng)
    axis = _axis(rng, shape)
    sizes = _ints(rng, 1, 3, int(rng.integers(1, 4)))
    return [(*shape[:axis], n, *shape[axis + 1 :]) for n in sizes], {"axis": axis}


def _flip(rng: Rng) -> Drawn:
    shape = _shape(rng)
    return (shape,), {"axis": _axis(rng, shape)}


def _pad(rng: Rng) -> Drawn:
    shape = _shape(rng)
    count = len(shape)
    return (shape,), {"before": _ints(rng, 0, 2, count), "after": _ints(rng, 0, 2, count)}


def _enlarge(rng: Rng) -> Drawn:
    kernel = _ints(rng, 1, 3, int(rng.integers(1, 4)))
    more = _ints(rng, 0, 1, len(kernel))
    wide = tuple(k + 2 * m for k, m in zip(kernel, more, strict=True))
    return ((2, 3, *kernel),), {"kernel": wide}


def _overwrite(rng: Rng) -> Drawn:
    shape = _shape(rng)
    part = tuple(int(rng.integers(1, n + 1)) for n in shape)
    start = tuple(int(rng.integers(n - m + 1)) for n, m in zip(shape, part, strict=True))
    return (shape, part), {"start": start}


def _reduction(rng: Rng) -> Drawn:
    shape = _shape(rng)
    axes = [n for n in range(len(shape)) if rng.random() < 0.5] or [0]
    return (shape,), {"axes": tuple(axes), "keep": int(rng.integers(2))}


def _softmax(rng: Rng) -> Drawn:
    shape = _shape(rng)
    return (shape,), {"axis": _axis(rng, shape)}


def _convolution(rank: int, *, transposed: bool) -> Callable[[Rng], Drawn]:
    def draw(rng: Rng) -> Drawn:
        samples, groups, inner, outer = _ints(rng, 1, 2, 4)
        kernel, dilation = _ints(rng, 1, 3, rank), _ints(rng, 1, 2, rank)
        stride, padding = _ints(rng, 1, 3, rank), _ints(rng, 0, 2, rank)
        reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
        more = _ints(rng, 0, 2, rank)
        attributes = {"stride": stride, "dilation": dilation, "groups": groups}
        if transposed:
            # Something is left of it when the padding is taken off.
            sizes = tuple(1 + m + p for m, p in zip(more, padding, strict=True))
            weight = (groups * inner, outer, *kernel)
            room = zip(stride, dilation, strict=True)
            attributes["output_padding"] = tuple(int(rng.integers(max(pair))) for pair in room)
            padding = tuple(min(p, (r - 1) // 2) for p, r in zip(padding, reach, strict=True))
        else:
            sizes = tuple(
                max(1, r - 2 * p) + m for r, p, m in zip(reach, padding, more, strict=True)
            )
            weight = (groups * outer, inner, *kernel)
        return ((samples, groups * inner, *sizes), weight), attributes | {"padding": padding}

    return draw


def _pool(rank: int, kind: str) -> Callable[[Rng], Drawn]:
    def draw(rng: Rng) -> Drawn:
        front = _ints(rng, 1, 2, int(rng.integers(1, 3)))
        kernel = _ints(rng, 1, 3, rank)
        if kind == "adaptive":
            counts = _ints(rng, 1, 3, rank)
            sizes = tuple(c * k for c, k in zip(counts, kernel, strict=True))
            return ((*front, *sizes),), {"counts": counts}
        attributes: dict[str, Any] = {"kernel": kernel, "stride": _ints(rng, 1, 3, rank)}
        attributes["padding"] = tuple(int(rng.integers(k // 2 + 1)) for k in kernel)
        attributes["ceil"] = int(rng.integers(2))
        dilation = (1,) * rank
        if kind == "max":
            attributes["dilation"] = dilation = _ints(rng, 1, 2, rank)
        else:
            attributes["count_padding"] = int(rng.integers(2))
        reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
        sizes = tuple(r + int(rng.integers(4)) for r in reach)
        return ((*front, *sizes),), attributes

    return draw


def _batch_norm(rng: Rng) -> Drawn:
    shape = _shape(rng, 2)
    return (shape, *[(shape[1],)] * 4), {"eps": 0.25}


DRAWS: dict[str, Callable[[Rng], Drawn]] = {
    **{row.name: _binary if row.arity == 2 else lambda rng: ((_shape(rng),), {})
       for row in elementwise.ELEMENTWISE},
    "scale": lambda rng: ((_shape(rng),), {"factor": -0.75}),
    "shift": lambda rng: ((_shape(rng),), {"term": 1.5}),
    "cast": lambda rng: ((_shape(rng),), {"to": "f64"}),
    "matmul": _matmul, "bmm": _bmm, "transpose": _transpose, "reshape": _reshape,
    "expand": _expand, "slice": _slice, "split": _split, "flip": _flip, "concat": _concat,
    "pad": _pad, "enlarge": _enlarge, "overwrite": _overwrite, "sum": _reduction,
    "mean": _reduction, "amax": _reduction, "softmax": _softmax, "batch_norm": _batch_norm,
    **{f"conv{n}d": _convolution(n, transposed=False) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _convolution(n, transposed=True) for n in (1, 2, 3)},
    **{f"{kind}_pool{n}d": _pool(n, kind) for n in (1, 2, 3) for kind in ("max", "avg")},
    **{f"adaptive_{kind}_pool{n}d": _pool(n, "adaptive")
       for n in (1, 2, 3) for kind in ("max", "avg")},
}  # fmt: skip
