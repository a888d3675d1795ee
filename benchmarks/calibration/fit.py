"""A bounded search along one coordinate after another, for a loss with corners."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Values = Mapping[str, float]
Bounds = Mapping[str, tuple[float, float]]

_FIRST_STEP = 0.25
_SHRINK = 0.6
# A gain below this is none.
_LEAST_GAIN = 1e-6


def minimise(
    loss: Callable[[Values], float], start: Values, bounds: Bounds, rounds: int
) -> dict[str, float]:
    """The best values found, each within its bounds; what has no bounds stays as it is.

    A step is a share of the span between the bounds; in each round every coordinate goes on in a
    direction as long as that helps. Deterministic.
    """
    best = dict(start)
    lowest = loss(best)
    step = _FIRST_STEP
    for _ in range(rounds):
        for name, (low, high) in bounds.items():
            for direction in (1.0, -1.0):
                while True:
                    moved = best[name] + direction * step * (high - low)
                    tried = {**best, name: min(high, max(low, moved))}
                    if tried[name] == best[name] or (value := loss(tried)) > lowest - _LEAST_GAIN:
                        break
                    best, lowest = tried, value
        step *= _SHRINK
    return best
