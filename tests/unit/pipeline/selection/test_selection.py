"""The last stages for µGraphs of several kernels, made by hand: evidence, names, artifacts."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import several_kernels
from idle_baselines import IdleBaselines

from mirage_py.errors import UnsupportedError, VerificationError
from mirage_py.pipeline.pipeline import normalise, save, verify_families
from mirage_py.pipeline.selection import selection
from mirage_py.pipeline.selection.request import Request
from mirage_py.pipeline.selection.selection import Ranking
from mirage_py.reasons import Code, Reason, Server
from mirage_py.runtime.store.artifact import load_artifact
from mirage_py.runtime.tune import baselines as baselines_module
from mirage_py.runtime.tune import tuner
from mirage_py.runtime.tune.measured import Measured, TuneReport
from mirage_py.search.enumerate.search import SearchResult
from mirage_py.search.extract.family import Family
from mirage_py.search.rank.instantiate import rank
from mirage_py.search.space.counters import Counter
from mirage_py.targets import H200
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.rewrite.split_dim import splits_of
from mirage_py.verify.evaluate.difference import Mismatch
from mirage_py.verify.field_test import families as families_module
from mirage_py.verify.samples.sampled_test import SampleEvidence, sampled_test

NOTHING_SEARCHED = SearchResult((), Counter().freeze(), True, (), (), 0.0)


def ranking(name: str) -> Ranking:
    graph, program = several_kernels.ugraph(name), several_kernels.program(name)
    normal = normalise(program)
    ranked = rank([graph], H200, 8)
    verified = verify_families(normal, [i.family for i in ranked], Request())
    return Ranking(program, normal, H200, NOTHING_SEARCHED, verified, (), ranked, Request())


@pytest.mark.parametrize(
    ("name", "kernels", "files"),
    [
        ("library_epilogue", 2, ["epilogue.py"]),
        ("library_prologue", 2, ["norm.py"]),
        ("split_matmul_added", 1, ["split_k.py"]),
    ],
)
def test_from_ranking_to_artifact(
    name: str, kernels: int, files: list[str], tmp_path: Path
) -> None:
    result = ranking(name).modelled()
    assert result.plan is not None
    assert result.evidence is not None
    assert result.evidence.samples > 0
    assert result.evidence.proved
    saved = save(result, tmp_path / "out")
    assert load_artifact(tmp_path / "out").plan == result.plan
    assert sorted(p.name for p in (tmp_path / "out" / "kernels").iterdir()) == files
    assert saved.document()["best"]["kernels"] == kernels
    # Candidates say what kind of kernels they are.
    names = {i.name for i in rank([several_kernels.ugraph(name)], H200, 8)}
    assert {c.kind for c in result.candidates} <= names


@pytest.mark.parametrize(("stops", "code"), [(True, Code.NOT_BEGUN), (False, Code.NONE_FITS)])
def test_an_interrupt_is_no_reason_to_say_that_nothing_fits(stops: bool, code: Code) -> None:
    family = Family(several_kernels.ugraph("library_epilogue"), 1.0, "library", ())
    found = replace(NOTHING_SEARCHED, families=(family,))
    request = Request(should_stop=lambda: stops)
    program = several_kernels.program("library_epilogue")
    nothing = Ranking(program, normalise(program), H200, found, {}, (), (), request)
    result = nothing.modelled()
    assert (result.plan, result.interrupted) == (None, stops)
    assert result.why_not.code is code


@pytest.fixture
def one_is_wrong(monkeypatch: pytest.MonkeyPatch) -> Plan:
    """The best plan of ``library_epilogue``, which the sampled test refuses."""
    best = ranking("library_epilogue").instances[0].plan

    def sampled(program: Program, graph: UGraph, **options: int) -> SampleEvidence:
        found = sampled_test(program, graph, **options)
        if graph == best.ugraph:
            return replace(found, equal=False, mismatch=Mismatch("Y", (3,)))
        return found

    monkeypatch.setattr(selection, "sampled_test", sampled)
    return best


def test_a_plan_that_a_sample_refuses_is_replaced(one_is_wrong: Plan) -> None:
    result = ranking("library_epilogue").modelled()
    assert result.plan is not None
    assert result.plan != one_is_wrong
    assert result.evidence is not None
    refused = result.candidates[0]
    assert (refused.plan, refused.passed) == (one_is_wrong, False)
    assert refused.reason.code is Code.NOT_EQUAL
    assert "Y[3]" in str(refused.reason)


def test_so_is_a_winner_on_a_gpu(one_is_wrong: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ranking("library_epilogue")
    refused = []

    def tune(program: Program, plans: Sequence[Plan], baselines: object, *, vouch, **_: object):
        with pytest.raises(VerificationError):
            vouch(one_is_wrong)
        refused.extend(p for p in plans if p == one_is_wrong)
        other = next(p for p in plans if p.ugraph != one_is_wrong.ugraph)
        vouch(other)
        best, eager = Measured("another", other, time_us=2.0), Measured("eager", time_us=3.0)
        best = replace(best, max_rel_error=1e-4, bound=1e-3)
        return TuneReport((best, eager), best, eager, ("the fastest, plan 0, was refused",))

    monkeypatch.setattr(tuner, "tune", tune)
    monkeypatch.setattr(baselines_module, "baselines", lambda *_, **__: {})
    monkeypatch.setattr(baselines_module, "WarmUp", IdleBaselines)
    result = found.measured()
    assert refused == [one_is_wrong]
    assert result.plan is not None
    assert result.plan.ugraph != one_is_wrong.ugraph
    assert result.evidence is not None
    assert result.evidence.samples > 0
    assert (result.evidence.max_rel_error, result.evidence.float_bound) == (1e-4, 1e-3)
    assert result.evidence.float_source == "h200, full size"
    assert "the fastest, plan 0, was refused" in result.notes


def test_evidence_that_was_begun_early_is_not_looked_for_again(monkeypatch: pytest.MonkeyPatch):
    found = ranking("library_epilogue")
    sampled: list[UGraph] = []

    def counted(program: Program, graph: UGraph, **options: int) -> SampleEvidence:
        sampled.append(graph)
        return sampled_test(program, graph, **options)

    def tune(program: Program, plans: Sequence[Plan], baselines: object, *, vouch, **_: object):
        early = threading.Thread(target=vouch, args=(plans[0],))
        early.start()
        early.join()
        vouch(plans[0])
        # Only how it is launched tells this one from it.
        vouch(next(p for p in plans[1:] if p.ugraph == plans[0].ugraph))
        best, eager = Measured("plan 0", plans[0], time_us=2.0), Measured("eager", time_us=3.0)
        return TuneReport((best, eager), best, eager)

    monkeypatch.setattr(selection, "sampled_test", counted)
    monkeypatch.setattr("mirage_py.runtime.tune.tuner.tune", tune)
    monkeypatch.setattr("mirage_py.runtime.tune.baselines.compiling", lambda *_: {})
    result = found.measured()
    assert result.evidence is not None
    assert result.plan is not None
    assert sampled == [result.plan.ugraph]


@pytest.fixture(scope="module")
def ranked_splits() -> Ranking:
    return ranking("split_rms_norm_matmul")


@pytest.fixture
def split(ranked_splits: Ranking) -> Ranking:
    """Of which nothing was tested at other parts yet."""
    return replace(ranked_splits)


def retested(monkeypatch: pytest.MonkeyPatch, outcome: object) -> list[int]:
    """The numbers of parts that are tested again, with what comes of it."""
    parts: list[int] = []

    def run(self, family: UGraph):
        parts.append(splits_of(family.program, "d"))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(selection.FamilyTests, "run", run)
    return parts


def test_the_plan_s_own_parts_are_tested(split: Ranking, monkeypatch: pytest.MonkeyPatch) -> None:
    (family,) = split.verified.values()
    evidence = replace(family.evidence, seed=77)
    parts = retested(monkeypatch, evidence)
    counts = [splits_of(i.plan.ugraph.program, "d") for i in split.instances]
    for instance, count in zip(split.instances, counts, strict=True):
        found = split._field_evidence(instance.family.digest, instance.plan)
        assert found == (family.evidence if count == several_kernels.PARTS else evidence)
    # Plans with the same number of parts differ in tiles alone.
    others = [count for count in counts if count != several_kernels.PARTS]
    assert parts == list(dict.fromkeys(others))
    assert len(others) > len(parts)


def other_parts(split: Ranking) -> tuple[str, Plan]:
    """A family's digest and a plan of it with another number of parts."""
    return next(
        (i.family.digest, i.plan)
        for i in split.instances
        if splits_of(i.plan.ugraph.program, "d") != several_kernels.PARTS
    )


def test_a_plan_whose_parts_are_wrong_is_refused(
    split: Ranking, monkeypatch: pytest.MonkeyPatch
) -> None:
    (family,) = split.verified.values()
    retested(monkeypatch, replace(family.evidence, equal=False))
    with pytest.raises(VerificationError):
        split._field_evidence(*other_parts(split))


def test_parts_that_no_field_can_judge_are_said(
    split: Ranking, monkeypatch: pytest.MonkeyPatch
) -> None:
    retested(monkeypatch, UnsupportedError("too large"))
    found = split._field_evidence(*other_parts(split))
    assert found.equal
    assert (found.bound_reason.code, found.bound_reason.data[1]) == (Code.OTHER_PARTS, "too large")


def test_a_family_that_no_field_can_judge_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    program = several_kernels.program("library_epilogue")
    graph = several_kernels.ugraph("library_epilogue")
    other = replace(graph, kernels=tuple(replace(k, name=f"{k.name}_2") for k in graph.kernels))
    real = families_module.field_test

    def test(program, family, **options):
        if family.digest == other.digest:
            raise UnsupportedError("too large")
        return real(program, family, **options)

    monkeypatch.setattr(families_module, "field_test", test)
    assert list(verify_families(program, [other, graph], Request())) == [graph.digest]
    with pytest.raises(UnsupportedError, match="too large"):
        verify_families(program, [other], Request())


def test_what_does_not_compile_for_the_target_is_dropped(monkeypatch):
    from mirage_py.runtime.compile import ahead_of_time

    found = ranking("library_prologue")
    refused = found.instances[0].plan
    no = Reason(Code.NOT_COMPILED, ("no",))
    CompiledPlan = ahead_of_time.CompiledPlan
    monkeypatch.setattr(
        ahead_of_time,
        "compiled_plan",
        lambda plan, _: CompiledPlan(fault=no if plan == refused else None),
    )
    result = found.modelled()
    assert result.plan == found.instances[1].plan
    assert (result.candidates[0].passed, result.candidates[0].reason) == (False, no)


def test_where_none_compiles_it_is_not_said_that_eager_is_faster(monkeypatch):
    from mirage_py.runtime.compile import ahead_of_time

    found = ahead_of_time.CompiledPlan(fault=Reason(Code.NOT_COMPILED, ("no",)))
    monkeypatch.setattr(ahead_of_time, "compiled_plan", lambda *_: found)
    result = ranking("library_prologue").modelled()
    assert result.plan is None
    assert result.notes == ("no candidate ran and gave the right result",)
    assert result.served == (Server.EAGER, Reason(Code.NO_CANDIDATE_PASSED))


def test_where_all_are_refused_the_result_says_why_the_fastest_was(monkeypatch):
    found = ranking("library_prologue")
    plans = [i.plan for i in found.instances[:3]]
    far = Reason(Code.TOO_FAR, ("out[3] = 1 instead of 2", "0.1", "4", "64"), "large inputs")
    late = Reason(Code.NOT_BEGUN, ("the time budget was used up",))
    eager = Measured("eager", time_us=9.0)
    given = [
        Measured("plan 0", plans[0], 5.0, passed=False, reason=late),
        Measured("plan 1", plans[1], 7.0, passed=False, reason=Reason(Code.RACE, ("1e-3",))),
        Measured("plan 2", plans[2], 6.0, passed=False, reason=far),
    ]

    def refused(*_, **__):
        return TuneReport((*given, eager), eager, eager)

    monkeypatch.setattr(tuner, "tune", refused)
    monkeypatch.setattr(baselines_module, "baselines", lambda *_, **__: {})
    monkeypatch.setattr(baselines_module, "WarmUp", IdleBaselines)
    why = found.measured().served.why
    assert why.code is Code.FASTEST_WAS_REFUSED
    assert "6.00 us measured (plan 2): large inputs: out[3] = 1 instead of 2" in str(why)
