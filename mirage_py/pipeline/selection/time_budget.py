"""The time budget: the share of each stage."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

# Plans ranked for each effort, with any budget: ranking 160 takes as long as ranking 40, and those
# that the learned ranker puts first are compiled first, until there is no more time.
PLANS = {"none": 8, "quick": 160, "full": 640}
# Seconds that an optimisation on a GPU takes where no budget is given, from the call on that waits
# for it; checks that are under way at the end come on top.
USUAL_S = {"quick": 11.0, "full": 280.0}
# What of it goes to tracing and what that imports, at most: what takes longer comes on top, too.
_TRACE_SHARE = 0.3
# Where it is cut, each part and the whole of them add as much, so many at most: of a network with
# 57 parts those that take longest are searched.
_MOST_SHARES = 5
# By when the search, the ranking and the verification have to be over.
_SEARCH_SHARE = 0.3
# The same where nothing has been found by then: a search that stops has been in vain.
_IN_VAIN_SHARE = 0.55
_RANK_SHARE = 0.4
_VERIFY_SHARE = 0.5
# What a ranking gets beyond that as long as the numerical check will likely refuse all it has that
# is fast.
_DOUBT_SHARE = 0.08
# What search, ranking and verification get even if what comes before them took longer: without a
# family all else would be for nothing, with an empty cache the back ends alone take a second to ask
# for, and the few families that a late ranking looks at may all be refused.
_LEAST_SEARCH_SHARE = 0.25
_LEAST_RANK_SHARE = 0.12
_LEAST_VERIFY_SHARE = 0.1
# So many seconds is what a ranking of many families takes, however short the budget: they may be a
# fifth of it.
_LEAST_RANK_S, _MOST_LATE_SHARE = 2.2, 0.2
# What measuring gets even if the stages before it took longer: they would have been for nothing.
_MEASURING_SHARE = 0.1
# Where nobody asked for a budget, what the parts of a program get in any case that is cut after it
# was searched whole.
_CUT_SHARE = 2 / 3


def usual_s(effort: str, parts: int = 0) -> float:
    """Seconds of an optimisation on a GPU for which nobody asked for a budget, of a program that is
    cut into so many parts, if it is.
    """
    return USUAL_S[effort] * min(parts + 1, _MOST_SHARES)


def counted_from(begun: float | None, effort: str, now: float) -> float:
    """Where the usual budget begins that has a call waiting for it which has ``begun``, or none:
    all times are of ``time.monotonic``.
    """
    return now if begun is None else max(min(begun, now), now - _TRACE_SHARE * USUAL_S[effort])


def _now() -> float:
    """Looked up at each call, so that a test can put another clock in its place."""
    return time.monotonic()


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """``seconds`` from ``started`` on; None for no end. All times are of ``time.monotonic``.

    ``is_usual``: nobody asked for it, it is that of the effort.
    """

    seconds: float | None
    started: float = field(default_factory=_now)
    is_usual: bool = False

    @property
    def end(self) -> float | None:
        """When all has to be over."""
        return None if self.seconds is None else self.started + self.seconds

    def left(self) -> float | None:
        """Seconds of it that are left, for parts of what was searched whole in vain."""
        if self.end is None or self.seconds is None:
            return None
        least = _CUT_SHARE if self.is_usual else _MEASURING_SHARE
        return max(self.end - _now(), least * self.seconds)

    def searched_by(self) -> float | None:
        """When the search has to be over, which begins now."""
        if self.seconds is None:
            return None
        least = _now() + _LEAST_SEARCH_SHARE * self.seconds
        return max(self.started + _SEARCH_SHARE * self.seconds, least)

    def in_vain_by(self) -> float | None:
        """When the search has to be over that has found nothing."""
        return None if self.seconds is None else self.started + _IN_VAIN_SHARE * self.seconds

    def ranked_by(self) -> float | None:
        """When families have to be screened and ranked, which begins now."""
        if self.seconds is None:
            return None
        few = min(_LEAST_RANK_S, _MOST_LATE_SHARE * self.seconds)
        least = _now() + max(_LEAST_RANK_SHARE * self.seconds, few)
        return max(self.started + _RANK_SHARE * self.seconds, least)

    def ranked_at_last(self, ranked_by: float | None) -> float | None:
        """When a ranking that has until ``ranked_by`` is over, also with nothing but plans in
        doubt.
        """
        return None if ranked_by is None else ranked_by + _DOUBT_SHARE * (self.seconds or 0.0)

    def verified_by(self) -> float | None:
        """When the verification has to be over, which begins now."""
        if self.seconds is None:
            return None
        least = _now() + _LEAST_VERIFY_SHARE * self.seconds
        return max(self.started + _VERIFY_SHARE * self.seconds, least)

    def measured_by(self) -> float | None:
        """When measuring has to be over, which begins now."""
        if self.seconds is None:
            return None
        least = _now() + _MEASURING_SHARE * self.seconds
        return max(self.started + self.seconds, least)
