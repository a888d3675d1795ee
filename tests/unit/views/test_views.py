"""Values in a notebook and for ``rich``; progress where somebody looks, and nowhere else."""

from __future__ import annotations

import io
import sys
import types
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from plans import rms_plan, two_kernel_plan
from rich.console import Console

from mirage_py.progress import Stage, Told, stage_of
from mirage_py.reasons import Code, Reason
from mirage_py.result import Candidate, Evidence, Result, SearchSummary, Timing
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.views import progress_view
from mirage_py.views.progress_view import line, progress, terminal_progress

PLAN = rms_plan()
EVIDENCE = Evidence(4, (5, 7), 5e-27, Reason(Code.DIFFERENT), True, 9e-4, 0.013, "interpreter", 3)
SEARCH = SearchSummary(0.5, 378, 15, True, {}, 0.1, 2.0, kinds={"one kernel": 9}, ranked=160)
TIME, BASELINE = Timing("rms", 5.0, "model"), Timing("fused <operators>", 20.0, "model")
RESULT = Result(
    PLAN.ugraph.program, "h200", "triton", BASELINE, TIME, PLAN, EVIDENCE, SEARCH,
    (PLAN.ugraph,), (Candidate(PLAN, TIME),), notes=("a note",),
)  # fmt: skip
REFUSED = replace(
    RESULT, plan=None, evidence=None, best=BASELINE, why_not=Reason(Code.NONE_VERIFIED)
)


def rich_text(value: object) -> str:
    out = io.StringIO()
    Console(file=out, width=120).print(value)
    return out.getvalue()


@pytest.mark.parametrize("value", [RESULT, PLAN.ugraph, PLAN, PlanRunner(PLAN), two_kernel_plan()])
def test_a_notebook_shows_a_picture(value: object):
    html = value._repr_html_()  # type: ignore[attr-defined]
    root = ET.fromstring(html)
    assert root.tag == "div"
    assert any(e.tag.endswith("svg") for e in root.iter())
    assert not {"script", "link", "img"} & {e.tag.rpartition("}")[2] for e in root.iter()}


def test_a_result_says_its_headline_and_its_facts():
    html = RESULT._repr_html_()
    assert "rms on h200: 4.00x predicted" in html
    assert "20.00 us predicted (fused &lt;operators&gt;)" in html
    text = rich_text(RESULT)
    for said in ("4.00x predicted", "5.00 us", "(fused <operators>)", "4 trials", "a note"):
        assert said in text


def test_a_result_without_kernels_has_no_picture():
    html = REFUSED._repr_html_()
    assert "<svg" not in html
    assert "no family passed verification" in html
    assert "no family passed verification" in rich_text(REFUSED)


def test_rich_shows_brackets_as_they_are():
    assert "load X[b, d]" in rich_text(PLAN.ugraph)
    assert "X[7, 96] : f16" in rich_text(PlanRunner(PLAN))


def test_a_large_picture_is_left_out(monkeypatch: pytest.MonkeyPatch):
    from mirage_py.views import html

    monkeypatch.setattr(html, "_MOST_NODES", 2)
    assert "nodes are no picture" in PLAN.ugraph._repr_html_()


def test_a_stage_is_its_words_and_has_facts():
    stage = Stage("timing", candidates=160, best_us=16.777, measured=True, ends=100.0)
    assert stage == "timing"
    assert stage.facts(now=88.4) == ("160 candidates", "best 16.78 us measured", "12 s left")
    assert Stage("x", candidates=1, ends=5.0).facts(now=9.0) == ("1 candidate", "0 s left")
    assert stage_of("part", stage) == "part: timing"
    assert stage_of("part", stage).facts(now=88.4) == stage.facts(now=88.4)
    assert stage_of("part", "plain").facts() == ()
    assert line("plain") == "plain"


def test_what_is_found_is_told_from_then_on():
    stages: list[str] = []
    told = Told(stages.append, ends=50.0)
    told("searching")
    told.found(378, 16.0)
    told("verifying")
    told.found(best_us=15.0, measured=True)
    told("timing")
    facts = [s.facts(now=20.0) for s in stages if isinstance(s, Stage)]
    assert stages == ["searching", "verifying", "timing"]
    assert facts == [
        ("30 s left",),
        ("378 candidates", "best 16.00 us predicted", "30 s left"),
        ("378 candidates", "best 15.00 us measured", "30 s left"),
    ]


def test_it_is_silent_where_nobody_looks(capfd: pytest.CaptureFixture[str]):
    with progress() as tell:
        tell("searching")
    assert capfd.readouterr() == ("", "")


def test_a_terminal_shows_one_line():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with terminal_progress(console) as tell:
        tell(Stage("searching X[b]", candidates=3))
    assert "searching X[b]; 3 candidates" in out.getvalue()


def test_one_line_at_a_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    shown: list[str] = []

    def view() -> object:
        shown.append("view")
        return terminal_progress(Console(file=io.StringIO()))

    monkeypatch.setattr(progress_view, "terminal_progress", view)
    with progress(), progress() as inner:
        inner("silent")
    with progress():
        pass
    assert shown == ["view", "view"]


def test_a_notebook_shows_the_stage_and_clears_it(monkeypatch: pytest.MonkeyPatch):
    shown: list[str] = []
    handle = types.SimpleNamespace(update=shown.append)

    def display(text: str, *, display_id: bool) -> object:
        assert display_id
        shown.append(text)
        return handle

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=1)  # type: ignore[attr-defined]
    ipython_display = types.ModuleType("IPython.display")
    ipython_display.display = display  # type: ignore[attr-defined]
    ipython_display.HTML = str  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython_display)
    with progress() as tell:
        tell(Stage("searching <x>", candidates=3))
    assert shown == ["", "<code>searching &lt;x&gt;; 3 candidates</code>", ""]
