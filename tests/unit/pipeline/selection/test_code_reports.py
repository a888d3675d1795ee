"""Reports of the checker of emitted code are made for the plan that is told of alone."""

from __future__ import annotations

import pytest
import torch

import mirage_py
from mirage_py.pipeline.selection.code_reports import CodeReports
from mirage_py.runtime.code_check import check


def test_reports_are_made_once_and_when_they_are_read():
    made: list[str] = []

    def make():
        made.append("now")
        return ({"kernel": name} for name in "ab")

    reports = CodeReports(make)
    assert made == []
    assert len(reports) == 2
    assert [r["kernel"] for r in reports] == ["a", "b"]
    assert reports[1:] == ({"kernel": "b"},)
    assert reports == ({"kernel": "a"}, {"kernel": "b"})
    assert reports != ({"kernel": "a"},)
    assert made == ["now"]


def test_the_code_of_a_plan_is_checked_when_its_report_is_written(monkeypatch: pytest.MonkeyPatch):
    """That takes seconds, of every plan that there is evidence for."""
    checked: list[str] = []
    original = check.check_winner

    def counted(plan, capability):
        checked.append(plan.backend)
        return original(plan, capability)

    monkeypatch.setattr(check, "check_winner", counted)
    program = mirage_py.trace(lambda x: torch.softmax(x, -1), torch.rand(16, 32))
    result = mirage_py.optimize(program, effort="none", target="h200")
    assert result.evidence is not None
    assert checked == []
    assert result.document()["verification"]["code"]
    assert len(checked) == 1
