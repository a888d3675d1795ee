"""Why not another kernel: every answer names a rule or a figure, and where it is from."""

import json
from dataclasses import replace

import pytest

from mirage_py.errors import FormatError, InputError
from mirage_py.frontend.spec.parse import parse
from mirage_py.pipeline.pipeline import rank_plans
from mirage_py.pipeline.selection import time_budget
from mirage_py.pipeline.selection.request import Request
from mirage_py.questions.answer import Basis
from mirage_py.questions.question import (
    OfBackEnd,
    OfKind,
    OfLaunch,
    OfOriginal,
    OfPlan,
    OfTile,
    read_question,
)
from mirage_py.questions.subject import Subject
from mirage_py.questions.variations import variation
from mirage_py.questions.why_not import why_not
from mirage_py.search.rank.plan_model import PlanModel
from mirage_py.targets import H200
from mirage_py.ugraph.ir.ugraph import BlockGraph

SPEC = """
B = 16, D = 4096, N = 6144
X[B, D], W[D, N] : f16
Y[b, n] = sum[d]( X[b, d] * W[d, n] ) / sqrt( mean[d](X[b, d]^2) + 1e-6 )
"""


@pytest.fixture(scope="module")
def searched() -> Subject:
    """A normed matmul as the cost model ranks it; searching again costs nothing."""
    program = parse(SPEC, name="normed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(time_budget.PLANS, "quick", 40)
        result = rank_plans(program, H200, Request("h200", "triton")).predicted()
    report = json.loads(json.dumps(result.document()))
    return Subject(program, result.plan, report, lambda: report, "normed.mirage")


@pytest.fixture(scope="module")
def artifact(searched: Subject) -> Subject:
    """The same with the plans that an artifact keeps: the winner and those next to it."""
    report = dict(searched.report)
    kept = [c for c in report["candidates"] if c["kind"] == "one kernel"][:4]
    return Subject(searched.program, searched.plan, {**report, "candidates": kept}, lambda: report)


@pytest.fixture
def measured(artifact: Subject) -> Subject:
    """As a GPU leaves it: times that were measured, a plan that was dropped, one without a time."""
    plans = [dict(c, source="measured") for c in artifact.report["candidates"]]
    plans[0]["time_us"] = 10.0
    plans[1].update(time_us=12.5)
    plans[2].update(passed=False, reason="Y is not finite", code="not_finite", time_us=None)
    plans[3].update(time_us=None)
    best = {**artifact.report["best"], "time_us": 10.0, "source": "measured"}
    return replace(artifact, report={**artifact.report, "candidates": plans, "best": best})


def texts(subject: Subject, question: str) -> str:
    answer = why_not(subject, question)
    return "\n".join([answer.verdict, *(f.text for f in answer.facts), *answer.changes])


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("split", OfKind("split")),
        ("Why not split d x8?", OfKind("split", "d", 8)),
        ("split x4", OfKind("split", "", 4)),
        ("two kernels", OfKind(kernels=2)),
        ("a cluster", OfKind("cluster")),
        ("library", OfKind("library")),
        ("cuda", OfBackEnd("cuda")),
        ("tile b 64", OfTile("b", 64)),
        ("grid N by 128", OfTile("n", 128, "grid")),
        ("loop d 32", OfTile("d", 32, "loop")),
        ("n=64", OfTile("n", 64)),
        ("8 warps", OfLaunch("warps", "8")),
        ("stages 2", OfLaunch("stages", "2")),
        ("num_warps=8", OfLaunch("warps", "8")),
        ("num_stages 3", OfLaunch("stages", "3")),
        ("overlap=across", OfLaunch("overlap", "across")),
        ("plan: 3", OfPlan(3)),
        ("warps 1x4x1", OfLaunch("warps", "1x4x1")),
        ("tma", OfLaunch("copies", "descriptors")),
        ("reversed", OfLaunch("axes", "reversed")),
        ("overlap", OfLaunch("overlap", "")),
        ("3", OfPlan(3)),
        ("plan 3", OfPlan(3)),
        ("torch.compile", OfOriginal()),
    ],
)
def test_words_are_read(artifact: Subject, words: str, asked: object):
    assert read_question(words, artifact) == asked


@pytest.mark.parametrize("words", ["", "foo", "tile", "split q", "overlap maybe"])
def test_what_cannot_be_asked_lists_what_can(artifact: Subject, words: str):
    with pytest.raises(InputError) as error:
        why_not(artifact, words)
    assert "use on, across" in error.value.repair or "tile DIM N" in error.value.repair


def test_unknown_plans_and_dimensions_name_those_there_are(artifact: Subject):
    with pytest.raises(InputError, match="no plan 4") as error:
        why_not(artifact, "4")
    assert error.value.repair == "name one from 0 to 3"
    with pytest.raises(InputError, match="no dimension 'zz'") as error:
        why_not(artifact, "tile zz 3")
    assert error.value.repair == "name one of b, n, d"


def test_what_does_not_fit_says_the_bytes_and_what_would(artifact: Subject):
    answer = why_not(artifact, "40 stages")
    (need,) = [f for f in answer.facts if f.code == "shared_memory"]
    assert "It does not fit h200." in answer.verdict
    assert need.basis is Basis.MODEL
    assert "(h200 has 232448)" in need.text
    assert int(need.text.split()[3]) > 232448
    assert answer.changes == ("smaller tiles: no launch makes room for these",)
    assert "shared memory" in texts(artifact, "loop d 512")


def test_a_tile_beyond_all_registers_is_a_rule(artifact: Subject):
    answer = why_not(artifact, "grid n 1024")
    assert "max_tile_elements" in [f.code for f in answer.facts if f.basis is Basis.RULE]


def test_a_prediction_is_the_cost_models(artifact: Subject):
    plan = artifact.plan
    assert plan is not None
    options = tuple(replace(o, num_warps=8) for o in plan.options)
    expected = PlanModel(replace(plan, options=options), H200).predicted().time_us
    assert f"{expected:.2f} us predicted for the whole plan" in texts(artifact, "8 warps")
    own = variation(plan, 0, H200)
    assert f"{own.time_us:.2f}" == f"{artifact.best_us:.2f}"


def test_the_rule_of_tiles_is_named(artifact: Subject):
    answer = why_not(artifact, "grid n 48")
    assert any(f.basis is Basis.RULE and f.code == "not_tried" for f in answer.facts)
    assert "16, 32, 64, 128, 256; 48 is none of them" in texts(artifact, "grid n 48")


def test_the_results_own_choices_are_said_to_be_its_own(artifact: Subject):
    assert artifact.winner is not None
    assert artifact.plan is not None
    (block,) = artifact.plan.ugraph.kernels
    assert isinstance(block, BlockGraph)
    for axis in block.grid:
        assert "The result has that tile" in texts(artifact, f"grid {axis.dim} {axis.tile}")
    assert "It is the result" in texts(artifact, str(artifact.winner.number))
    assert "The result is of that sort" in texts(artifact, "one kernel")
    assert "The result is of that sort" in texts(artifact, "triton")


def test_a_kind_beyond_the_report_is_searched(artifact: Subject):
    answer = why_not(artifact, "split")
    found, searched = answer.facts
    assert (found.basis, found.code) == (Basis.REPORT, "found")
    assert searched.basis is Basis.SEARCH
    report = artifact.search_again()
    best = min(c["time_us"] for c in report["candidates"] if "split" in c["kind"])
    assert f"{best:.2f} us predicted, the best of" in searched.text
    assert answer.verdict.startswith("It is predicted to be slower, by")


def test_a_tile_that_the_result_has_not_is_searched(artifact: Subject):
    none = why_not(artifact, "loop n 64")
    assert none.facts[0].text == "no loop of the result is over n"
    assert [f.code for f in none.facts] == ["", "", "hopeless"]
    report = dict(artifact.report)
    looped = {**report["candidates"][0], "tiles": "grid b by 16; loop n by 64", "time_us": 1e3}
    report["candidates"] = [*report["candidates"], looped]
    answer = why_not(replace(artifact, search_again=lambda: report), "loop n 64")
    assert answer.facts[1].basis is Basis.SEARCH
    assert "loop n by 64: 1000.00 us predicted" in answer.facts[1].text


def test_a_program_in_parts_is_not_searched_again(artifact: Subject):
    report = {**artifact.report, "notes": ["partitioned in 2 parts at T1: too large"]}
    subject = replace(artifact, report=report, search_again=lambda: pytest.fail("searched"))
    answer = why_not(subject, "split")
    assert answer.verdict == "The program was cut, and searched in parts."
    assert [f.code for f in answer.facts] == ["found", "parts"]


def test_a_kind_that_cannot_be_names_its_rule(artifact: Subject):
    codes = {f.code for f in why_not(artifact, "cluster").facts}
    assert "max_cluster_blocks" in codes
    short = parse(SPEC.replace("4096", "48"), name="short")
    search = {**artifact.report["search"], "families": {"one kernel": 2}}
    subject = replace(artifact, program=short, report={**artifact.report, "search": search})
    assert "d = 48 is shorter than 64" in texts(subject, "split")
    assert "n is not reduced" in texts(subject, "split n")
    limited = {**search, "limits": {**search["limits"], "max_kernels": 1}}
    subject = replace(subject, report={**artifact.report, "search": limited})
    assert "max_kernels = 1" in texts(subject, "two kernels")


def test_a_back_end_that_was_left_out_says_why(artifact: Subject):
    note = "no CUDA kernels are among the candidates: nothing compiles CUDA kernels"
    subject = replace(artifact, report={**artifact.report, "notes": [note]})
    assert note in texts(subject, "cuda")


def test_measured_times_are_compared(measured: Subject):
    said = texts(measured, "1")
    assert "It is measured to be slower." in said
    assert "12.50 us measured, 25.0% more than the 10.00 us of the best" in said
    assert "its time would have to fall by 2.50 us" in said


def test_times_that_are_one_are_said_to_be(measured: Subject):
    plans = [dict(c) for c in measured.report["candidates"]]
    plans[1]["time_us"] = 10.004
    subject = replace(measured, report={**measured.report, "candidates": plans})
    said = texts(subject, "1")
    assert "It is as fast." in said
    assert "closer than one timing is to the next" in said
    assert "0.00 us" not in said.replace("10.00 us", "")


def test_dropped_and_untimed_plans_say_why(measured: Subject):
    answer = why_not(measured, "plan 2")
    assert answer.verdict == "It was dropped before it could win."
    assert [(f.text, f.code) for f in answer.facts] == [("Y is not finite", "not_finite")]
    assert "a larger --budget" in texts(measured, "3")


def test_options_of_another_back_end_say_so(artifact: Subject):
    answer = why_not(artifact, "overlap across")
    assert answer.verdict == "It has no effect there."
    assert [f.code for f in answer.facts if f.code] == ["other_back_end"]
    assert answer.changes == ("--backend cuda",)


def test_the_original_is_a_question_too(artifact: Subject):
    original = replace(artifact, plan=None)
    assert why_not(original, "eager").verdict == "It is the result."
    assert why_not(original, "8 warps").verdict.startswith("The original program is the result")
    assert "would have to take" in texts(artifact, "the original program")


def test_every_answer_is_a_document(artifact: Subject):
    for question in ("split", "cuda", "tile n 128", "8 warps", "0", "eager"):
        document = why_not(artifact, question).document()
        assert json.loads(json.dumps(document)) == document
        assert document["facts"], question


def test_a_report_without_plans_is_refused(artifact: Subject):
    report = {k: v for k, v in artifact.report.items() if k != "candidates"}
    with pytest.raises(FormatError, match="no candidates") as error:
        replace(artifact, report=report, where="x.mirage")
    assert error.value.where == "x.mirage/report.json"
