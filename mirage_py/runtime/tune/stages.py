"""The seconds of each stage of a tuning."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from mirage_py.runtime.numerical_check.check_pool import NumericalCheck


class Stages:
    """Seconds by the name of the stage; waiting for references is a stage of its own."""

    def __init__(self, check: NumericalCheck) -> None:
        self.seconds: dict[str, float] = {}
        self._check = check

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add what the block takes, without what it waits for references."""
        start, waited = time.monotonic(), self._check.waited_s
        try:
            yield
        finally:
            waited = self._check.waited_s - waited
            spent = time.monotonic() - start - waited
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
            self.seconds["references"] = self.seconds.get("references", 0.0) + waited
