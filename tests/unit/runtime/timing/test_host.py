"""What a call takes of the host."""

from __future__ import annotations

import itertools
import time

from mirage_py.runtime.timing.host import host_us


def test_calls_are_on_the_clock_and_waiting_is_not():
    calls, waits = [], []

    def call() -> None:
        calls.append(1)
        time.sleep(0.0005)

    def wait() -> None:
        waits.append(len(calls))
        time.sleep(0.002)

    found = host_us(call, wait)
    assert found >= 500.0
    # One call before the clock starts, then rounds of the same length with a wait before each.
    assert waits[0] == 1
    rounds = {after - before for before, after in itertools.pairwise(waits)}
    assert rounds == {(len(calls) - 1) // (len(waits) - 1)}
