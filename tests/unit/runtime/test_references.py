"""Input sets are prepared side by side, each by a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from plans import scale_program

from mirage_py.errors import CompileError
from mirage_py.runtime.references import References, at_a_time

PROGRAM = scale_program(4, 8)
PLENTY = 1 << 50


def service(name: str, **more: str) -> dict[str, str]:
    return {"service": f"unit.runtime.fault_services:{name}", **more}


def test_sets_are_prepared_at_the_same_time(tmp_path: Path):
    found = References(PROGRAM, service("meet", folder=str(tmp_path)), ("random", "large"), {})
    try:
        assert found.wait(["random"]) > 0.0
        found.wait(["large"])
    finally:
        found.close()


def test_a_set_that_fails_is_an_error_for_those_who_need_it():
    found = References(PROGRAM, service("half"), ("random", "zeros"), {"zeros": 0.0})
    try:
        assert found.wait(["random"]) == 0.5
        with pytest.raises(CompileError, match="no such set"):
            found.wait(["random", "zeros"])
    finally:
        found.close()


def test_how_many_at_a_time():
    assert [at_a_time(PROGRAM, 8, cores, PLENTY) for cores in (1, 2, 8, 16, 128)] == [2, 2, 4, 8, 8]
    assert at_a_time(PROGRAM, 2, 128, PLENTY) == 2
    wide = scale_program(1 << 14, 1 << 14)
    # 13 GB for the copies of 2^28 elements, and 2 for windows.
    assert at_a_time(wide, 8, 128, 64 << 30) == 2
    assert at_a_time(wide, 8, 128, 1 << 30) == 1
