"""Input sets are prepared side by side, each by a process of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from plans import scale_program

from mirage_py.errors import CompileError
from mirage_py.runtime.numerical_check import references
from mirage_py.runtime.numerical_check.input_store import InputStore
from mirage_py.runtime.numerical_check.references import Known, References, at_a_time
from mirage_py.ugraph.text.json_form import dump_text
from mirage_py.verify.numerical_check.input_sets import SET_NAMES, drawn_sets
from mirage_py.verify.numerical_check.numerical_check import reference

PROGRAM = scale_program(4, 8)
PLENTY = 1 << 50


def service(name: str, **more: str) -> dict[str, str]:
    return {"service": f"unit.runtime.fault_services:{name}", **more}


def test_sets_are_prepared_at_the_same_time(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(references, "_available_bytes", lambda: PLENTY)
    found = References(PROGRAM, service("meet", folder=str(tmp_path)), ("random", "large"), {})
    try:
        assert found.wait(["random"]).share > 0.0
        found.wait(["large"])
    finally:
        found.close()


def test_what_is_prepared_is_what_the_gate_reads(tmp_path: Path):
    bounds = {"folder": str(tmp_path), "program": dump_text(PROGRAM), "seed": 0, "max_work": 1e6}
    found = References(PROGRAM, {"service": "prepare_check", **bounds}, SET_NAMES[:2], {})
    try:
        assert found.wait(SET_NAMES[:2]) == Known(1.0, {"random": 0.0, "large": 0.0})
    finally:
        found.close()
    store = InputStore(tmp_path, PROGRAM)
    for inputs in drawn_sets(PROGRAM, 0, SET_NAMES[:2]):
        (x,) = store.inputs(inputs.name, torch.device("cpu"))
        assert np.array_equal(x.double().numpy(), inputs.arrays["X"])
        known = reference(PROGRAM, inputs.arrays)
        assert np.array_equal(store.read_reference(inputs.name)["Y"], known["Y"])


def test_a_set_that_fails_is_an_error_for_those_who_need_it():
    found = References(PROGRAM, service("half"), ("random", "zeros"), {"zeros": 0.0})
    try:
        known = found.wait(["random"])
        assert known == Known(0.5, {"random": 0.25}, ("random",))
        assert "no time to look for larger numbers: random" in known.notes()[-1]
        with pytest.raises(CompileError, match="no such set"):
            found.wait(["random", "zeros"])
    finally:
        found.close()


def test_how_many_at_a_time():
    assert [at_a_time(PROGRAM, 8, cores, PLENTY) for cores in (1, 2, 8, 16, 128)] == [2, 2, 4, 8, 8]
    assert at_a_time(PROGRAM, 2, 128, PLENTY) == 2
    wide = scale_program(1 << 14, 1 << 14)
    # 8 GiB for the 2^28 elements of the output, and 2 for windows.
    assert at_a_time(wide, 8, 128, 64 << 30) == 3
    assert at_a_time(wide, 8, 128, 1 << 30) == 1
