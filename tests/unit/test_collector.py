"""Garbage collections are rare while somebody wants it, whoever ends last."""

from __future__ import annotations

import gc

from mirage_py.collector import rarely_collecting


def test_thresholds_are_as_before_when_the_last_block_is_over() -> None:
    usual = gc.get_threshold()
    first, second = rarely_collecting(), rarely_collecting()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold()[0] > usual[0]
    second.__exit__(None, None, None)
    assert gc.get_threshold() == usual
