"""Progress of an optimisation: what is being done, in words, with what is known so far."""

from __future__ import annotations

import time
from collections.abc import Callable


class Stage(str):
    """What is being done. A string, so that ``print`` shows it; views show ``facts`` beside it.

    ``candidates`` that there are so far; the time of the best in microseconds and whether it was
    ``measured``; when the budget ``ends``, of ``time.monotonic``. None where it is not known.
    """

    __slots__ = ("best_us", "candidates", "ends", "measured")
    candidates: int | None
    best_us: float | None
    measured: bool
    ends: float | None

    def __new__(
        cls,
        text: str,
        *,
        candidates: int | None = None,
        best_us: float | None = None,
        measured: bool = False,
        ends: float | None = None,
    ) -> Stage:
        """The words with what is known."""
        made = super().__new__(cls, text)
        made.candidates, made.best_us = candidates, best_us
        made.measured, made.ends = measured, ends
        return made

    def of(self, name: str) -> Stage:
        """The same, and what it is a stage of."""
        return Stage(
            f"{name}: {self}",
            candidates=self.candidates,
            best_us=self.best_us,
            measured=self.measured,
            ends=self.ends,
        )

    def facts(self, now: float | None = None) -> tuple[str, ...]:
        """What is known, in words; of the budget what is left of it ``now``."""
        found = []
        if self.candidates is not None:
            found.append(f"{self.candidates} candidate{'s' * (self.candidates != 1)}")
        if self.best_us is not None:
            said = "measured" if self.measured else "predicted"
            found.append(f"best {self.best_us:.2f} us {said}")
        if self.ends is not None:
            left = max(0.0, self.ends - (time.monotonic() if now is None else now))
            found.append(f"{left:.0f} s left")
        return tuple(found)


def stage_of(name: str, text: str) -> Stage:
    """A stage, or plain words, of something with a name."""
    return (text if isinstance(text, Stage) else Stage(text)).of(name)


class Told:
    """Stages told to a function with all that is known by then: what one stage finds out, the next
    ones have too.
    """

    def __init__(self, tell: Callable[[str], None], ends: float | None = None) -> None:
        self._tell = tell
        self.ends = ends
        self.candidates: int | None = None
        self.best_us: float | None = None
        self.measured = False

    def __call__(self, text: str) -> None:
        """Tell of a stage that begins."""
        self._tell(
            Stage(
                text,
                candidates=self.candidates,
                best_us=self.best_us,
                measured=self.measured,
                ends=self.ends,
            )
        )

    def found(
        self,
        candidates: int | None = None,
        best_us: float | None = None,
        *,
        measured: bool = False,
    ) -> None:
        """Know more: so many candidates, the time of the best."""
        self.candidates = self.candidates if candidates is None else candidates
        if best_us is not None:
            self.best_us, self.measured = best_us, measured
