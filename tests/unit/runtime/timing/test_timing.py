from __future__ import annotations

import pytest
import torch

from mirage_py.errors import InputError
from mirage_py.runtime.timing.timing import (
    MAX_SETS,
    _summary,
    first_sets,
    rotation_sets,
    time_interleaved,
)

L2 = 60 << 20


def test_the_sets_exceed_the_cache_four_times():
    for set_bytes in (300_000, 1 << 20, 50 << 20, 239 << 20):
        sets = rotation_sets(set_bytes, L2)
        assert (sets - 1) * set_bytes >= 4 * L2 or sets == MAX_SETS
    assert rotation_sets(1 << 30, L2) == 2
    assert rotation_sets(3 << 30, L2) == 1
    assert rotation_sets(16, L2) == MAX_SETS


def test_a_first_timing_takes_fewer_sets_and_leaves_the_cache_as_it_would_be():
    """A capture of 1024 launches took most of 120 ms a plan."""
    for set_bytes in (16, 30_000, 100_000, 300_000, 1 << 20, 50 << 20, 3 << 30):
        first, every = first_sets(set_bytes, L2), rotation_sets(set_bytes, L2)
        assert first <= every
        assert (first * set_bytes > L2) == (every * set_bytes > L2)
    assert first_sets(16, L2) == first_sets(30_000, L2) == MAX_SETS // 4
    assert MAX_SETS // 4 < first_sets(300_000, L2) < rotation_sets(300_000, L2)
    assert first_sets(1 << 30, L2) == 2


def test_the_median_counts():
    found = _summary([10.0, 11.0, 12.0, 13.0, 500.0], "")
    assert found.median_us == 12.0
    assert found.p20_us < 12.0 < found.p80_us
    assert found.ran


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="nothing to time on"):
        time_interleaved({"a": lambda _: None}, 2, reps=3)
