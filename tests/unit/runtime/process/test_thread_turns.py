"""Turns of threads are short while somebody needs it, whoever ends last."""

from __future__ import annotations

import sys

from mirage_py.runtime.process.thread_turns import short_turns


def test_turns_are_as_before_when_the_last_block_is_over() -> None:
    usual = sys.getswitchinterval()
    first, second = short_turns(), short_turns()
    first.__enter__()
    second.__enter__()
    assert sys.getswitchinterval() < usual
    first.__exit__(None, None, None)
    assert sys.getswitchinterval() < usual
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == usual
