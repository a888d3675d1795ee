"""Whether this is ``make nightly``, which draws and enumerates more; what is chosen by day."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import combinations

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"


def covering(cases: Sequence[Mapping[int, str]], strength: int) -> list[int]:
    """The places of cases (a name of the value for each parameter), so few that every choice of
    values for ``strength`` parameters that is among all cases is among them: a covering array, each
    next case being the one that brings most.
    """
    choices = [dict.fromkeys(combinations(sorted(case.items()), strength)) for case in cases]
    left = dict.fromkeys(choice for own in choices for choice in own)
    found: list[int] = []
    while left:
        best = max(range(len(cases)), key=lambda n: sum(c in left for c in choices[n]))
        found.append(best)
        for choice in choices[best]:
            left.pop(choice, None)
    return sorted(found)
