"""The order in which parts are searched, and the time that each gets."""

from __future__ import annotations

import time
from collections.abc import Sequence

from mirage_py.pipeline.partition.limits import operator_count
from mirage_py.pipeline.partition.partition import Partition
from mirage_py.search.model.baseline_model import fused_model_us
from mirage_py.targets import Target
from mirage_py.ugraph.rewrite.convolutions import library_convolution

# Seconds of a part in which something may be found: with less it is not begun.
LEAST_S = 0.75
# Seconds in which a part is searched, compiled and timed so far that its plan is worth having: of
# many parts those that take longest have as much.
_ENOUGH_S = 5.0
# So many parts have their shares whatever the others took.
_FEW = 8
# What checking and timing the composites get of all that there is.
_COMPOSITES = 0.25


class PartClock:
    """``first`` has for each part the one that is searched for it; ``budget`` is that of all parts
    and the composites, to ``deadline`` (of time.monotonic); None for no end. Without ``measure``
    all have their shares: plans run on the CPU, which takes as long as it takes.
    """

    def __init__(
        self,
        whole: Partition,
        first: Sequence[int],
        target: Target,
        budget: float | None,
        deadline: float | None,
        *,
        measure: bool = True,
    ) -> None:
        # Neither a library's part nor a copy is searched; the composite is measured.
        counts = [0 if library_convolution(p) else operator_count(p) for p in whole.parts]
        distinct = list(dict.fromkeys(first))
        searched = [n for n in distinct if counts[n]]
        mean = sum(counts[n] for n in searched) / max(1, len(searched))
        # Half as any other has, half by its operators.
        self._weights = {n: (1.0 + counts[n] / mean) / 2.0 for n in searched}
        self._equal = 0.0 if budget is None else budget / (len(searched) + 1)
        self._reserved = max(self._equal, _COMPOSITES * (budget or 0.0))
        self._deadline = deadline
        self._are_few = not measure or len(searched) <= _FEW
        values = {n: fused_model_us(whole.parts[n], target) * first.count(n) for n in searched}
        apart = [n for n in distinct if not counts[n]]
        self.order = (*apart, *sorted(searched, key=lambda n: -values[n]))

    def share(self, number: int) -> float | None:
        """Seconds for a part, whose turn it is; 0 where it is not worth while to begin with it.

        The parts that are left share what is left. Where they are few each has its share even if
        others took longer; of many the first ones have enough, and the last ones may have nothing.
        """
        if self._deadline is None:
            return None
        left = self._deadline - self._reserved - time.monotonic()
        waiting = sum(self._weights.values())
        own = self._weights.pop(number, None)
        if own is None:
            return max(left, LEAST_S)
        least = self._equal * own if self._are_few else min(_ENOUGH_S, left)
        share = max(left * own / waiting, least)
        if share >= LEAST_S:
            return share
        return LEAST_S if left >= LEAST_S else 0.0

    def is_too_late(self) -> bool:
        """Whether a part for which nothing is left is not even ranked, which takes of the time of
        the composites: half of that remains theirs.
        """
        assert self._deadline is not None
        left = self._deadline - self._reserved / 2.0 - time.monotonic()
        return left < LEAST_S
