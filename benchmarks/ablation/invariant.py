"""The price of rows that are computed alike: kernels for any number of rows beside free ones.

    python -m benchmarks.ablation.invariant [--budget SECONDS]    # needs a GPU; about four minutes

A free kernel is searched for each number of rows; ``eager_differs`` are the numbers at which the
function itself gives a row other bits than among all.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import mirage_py
from mirage_py.runtime.timing.timing import time_interleaved

_MOST = 2048
_ROWS = (1, 4, 16)
_SETS = 6


def norm(x: Tensor, g: Tensor, w: Tensor) -> Tensor:
    """A norm and a projection."""
    return F.rms_norm(x, (x.shape[-1],), g, 1e-6) @ w


def mlp(x: Tensor, u: Tensor, w: Tensor) -> Tensor:
    """The first half of a gated MLP."""
    return F.silu(x @ u) * (x @ w)


def decode(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A new token of each sequence."""
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


# Shapes of the tensors that have rows, and of the others.
_PROGRAMS: dict[Callable[..., Tensor], tuple[list[tuple[int, ...]], list[tuple[int, ...]]]] = {
    norm: ([(_MOST, 4096)], [(4096,), (4096, 6144)]),
    mlp: ([(_MOST, 4096)], [(4096, 14336), (4096, 14336)]),
    decode: ([(_MOST, 32, 1, 128), (_MOST, 8, 512, 128), (_MOST, 8, 512, 128)], []),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line of JSON for each program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=15.0, help="seconds of each search")
    budget = parser.parse_args(arguments).budget
    for function in _PROGRAMS:
        print(json.dumps(priced(function, budget)), flush=True)
    return 0


def priced(function: Callable[..., Tensor], budget: float) -> dict[str, Any]:
    """Microseconds at a few numbers of rows, and where bits differ."""
    of_rows, others = ([_numbers(s) for s in shapes] for shapes in _PROGRAMS[function])
    names = function.__code__.co_varnames[: len(of_rows)]
    axes = {name: {0: "rows"} for name in names}
    alike = mirage_py.superoptimize(invariant=True, dynamic=axes, budget=budget)(function)
    everything, eager = alike(*of_rows, *others), function(*of_rows, *others)
    found: dict[str, Any] = {"program": function.__name__, "differs": [], "eager_differs": []}
    for count in (*range(1, 130), *range(130, _MOST, 13), _MOST):
        some = [x[:count] for x in of_rows]
        if not torch.equal(alike(*some, *others), everything[:count]):
            found["differs"].append(count)
        if not torch.equal(function(*some, *others), eager[:count]):
            found["eager_differs"].append(count)
    for rows in _ROWS:
        free = mirage_py.superoptimize(budget=budget)(function)
        sets = [[x[n * rows : (n + 1) * rows] for x in of_rows] for n in range(_SETS)]
        weights = [[w.clone() for w in others] for _ in range(_SETS)]
        calls = {"alike": alike, "free": free, "eager": function}
        for call in calls.values():
            for some, held in zip(sets, weights, strict=True):
                call(*some, *held)
        times = time_interleaved(
            {n: _entry(call, sets, weights) for n, call in calls.items()}, _SETS, reps=21
        )
        found[f"us_at_{rows}"] = {name: round(t.median_us, 2) for name, t in times.items()}
    return found


def _entry(
    call: Callable[..., Any], sets: Sequence[Sequence[Tensor]], weights: Sequence[Sequence[Tensor]]
) -> Callable[[int], Any]:
    return lambda number: call(*sets[number], *weights[number])


def _numbers(shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator("cuda").manual_seed(len(shape))
    drawn = torch.randn(*shape, generator=generator, device="cuda").bfloat16()
    return drawn / 64 if len(shape) == 2 and shape[0] == 4096 else drawn


if __name__ == "__main__":
    raise SystemExit(main())
