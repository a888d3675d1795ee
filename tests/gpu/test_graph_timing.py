"""The clock: what it shows must be what the hardware can do, whoever is asked first."""

from __future__ import annotations

import time

import pytest
import torch

from mirage_py.runtime.timing.timing import rotation_sets, time_interleaved

pytestmark = pytest.mark.gpu


def rotated(size_bytes: int) -> list[torch.Tensor]:
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    count = rotation_sets(size_bytes, l2_bytes)
    return [torch.randn(size_bytes // 4, device="cuda") for _ in range(count)]


def test_a_read_comes_from_memory_and_not_from_the_cache():
    size_bytes = 32 << 20
    sets = rotated(size_bytes)
    times = time_interleaved({"sum": lambda i: sets[i].sum()}, len(sets), reps=9)
    found = times["sum"]
    assert found.ran
    assert not found.note
    assert found.p20_us <= found.median_us <= found.p80_us
    # No GPU reads DRAM at 10 TB/s; a warm L2 would look like more.
    assert size_bytes / 10e6 < found.median_us < 1000


def test_equal_entries_take_equal_times():
    sets = rotated(8 << 20)
    entries = {name: lambda i: sets[i].sum() for name in "abc"}
    times = time_interleaved(entries, len(sets), reps=15)
    medians = [t.median_us for t in times.values()]
    assert list(times) == ["a", "b", "c"]
    assert max(medians) < 1.25 * min(medians)


def test_twice_the_work_takes_about_twice_as_long():
    sets = rotated(32 << 20)

    def twice(i: int) -> None:
        sets[i].sum()
        sets[(i + len(sets) // 2) % len(sets)].sum()

    times = time_interleaved({"once": lambda i: sets[i].sum(), "twice": twice}, len(sets), reps=9)
    ratio = times["twice"].median_us / times["once"].median_us
    assert 1.5 < ratio < 2.6


def test_what_cannot_be_captured_is_timed_call_by_call():
    sets = rotated(8 << 20)
    times = time_interleaved(
        {"syncs": lambda i: sets[i].sum().item(), "plain": lambda i: sets[i].sum()},
        len(sets),
        reps=3,
    )
    assert times["syncs"].ran
    assert "call by call" in times["syncs"].note
    assert times["plain"].ran
    assert not times["plain"].note


def test_what_fails_is_reported_and_the_others_go_on():
    sets = rotated(8 << 20)

    def broken(i: int) -> None:
        raise ValueError("not today")

    times = time_interleaved(
        {"broken": broken, "plain": lambda i: sets[i].sum()}, len(sets), reps=3
    )
    assert times["broken"].failure == "ValueError: not today"
    assert times["broken"].median_us == float("inf")
    assert times["plain"].ran


def test_the_deadline_leaves_few_replays():
    sets = rotated(8 << 20)
    times = time_interleaved(
        {"sum": lambda i: sets[i].sum()}, len(sets), reps=100_000, deadline=time.monotonic() - 1
    )
    assert 3 <= times["sum"].reps < 100_000
