"""From a program that is too large to a result, with small limits."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from idle_baselines import IdleBaselines

from mirage_py.errors import UnsupportedError, VerificationError
from mirage_py.frontend.spec import parse
from mirage_py.pipeline import pipeline
from mirage_py.pipeline.partition import optimize_parts as optimize_parts_module
from mirage_py.pipeline.partition import part_clock
from mirage_py.pipeline.partition.composites import Composite
from mirage_py.pipeline.partition.limits import PartitionLimits, fits, operator_count
from mirage_py.pipeline.partition.optimize_parts import PartJob, optimize_parts
from mirage_py.pipeline.partition.part_clock import PartClock
from mirage_py.pipeline.partition.partition import Partition, partition
from mirage_py.pipeline.pipeline import normalise, optimize, rank_plans, save
from mirage_py.pipeline.selection.backends import for_cuda
from mirage_py.pipeline.selection.request import Request
from mirage_py.pipeline.selection.selection import Ranking
from mirage_py.reasons import Code
from mirage_py.result import Evidence, Result
from mirage_py.runtime.cpu.triton_interpreter import check_interpreted
from mirage_py.runtime.store.artifact import load_artifact
from mirage_py.runtime.tune import baselines as baselines_module
from mirage_py.runtime.tune import tuner
from mirage_py.runtime.tune.measured import Measured, TuneReport
from mirage_py.targets import H200, Target
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.verify.evaluate.difference import Mismatch
from mirage_py.verify.samples.sampled_test import SampleEvidence

LIMITS = PartitionLimits(operators=3, reduced_dims=1)
SMALL = """
B = 5, D = 24, N = 12
X[B, D], W[D, N], C[B, N] : f16
Y[b, n] = exp( silu( sum[d](X[b, d] * W[d, n]) ) * 0.1 + C[b, n] )
"""


@pytest.fixture(scope="module")
def program() -> Program:
    return parse(SMALL, name="small")


@pytest.fixture(scope="module")
def whole(program: Program) -> Partition:
    found = partition(normalise(program), LIMITS)
    assert len(found.parts) == 2
    return found


ALONE = PartJob(H200, False, Request(backend="triton", effort="none"))
TIMED = replace(ALONE, measure=True)


def rank(part: Program, target: Target, request: Request) -> Ranking:
    assert request.budget is None
    assert request.baselines is None
    return rank_plans(part, target, request)


@pytest.fixture(scope="module")
def modelled(program: Program, whole: Partition) -> Result:
    return optimize_parts(program, whole, rank, ALONE)


def test_the_plans_of_the_parts_are_one_plan(modelled: Result, whole: Partition):
    assert modelled.plan is not None
    assert len(modelled.plan.ugraph.kernels) >= 2
    assert modelled.notes[0] == whole.reason
    assert modelled.notes[0].startswith("partitioned in 2 parts at T1 (")
    assert modelled.notes[1].startswith("verified part by part")
    assert modelled.best.source == "model"
    assert modelled.best.time_us < modelled.baseline.time_us
    assert modelled.evidence is not None
    assert modelled.evidence.samples >= 2
    assert modelled.evidence.bound_reason.code is Code.PART_BY_PART
    assert modelled.search.ranked > 1
    assert any(ring.startswith("small_part1, ") for ring in modelled.search.rings)


def test_the_code_of_every_kernel_of_every_part_is_reported(modelled: Result):
    assert modelled.plan is not None
    assert modelled.evidence is not None
    blocks = [k.name for k in modelled.plan.ugraph.kernels if isinstance(k, BlockGraph)]
    assert len(blocks) >= 2
    assert [report["kernel"] for report in modelled.evidence.code] == blocks


def test_the_composite_computes_the_program(modelled: Result, program: Program, tmp_path: Path):
    assert modelled.plan is not None
    found = check_interpreted(normalise(program), modelled.plan, seed=1)
    assert found.passed, found.reason
    save(modelled, tmp_path / "out")
    assert load_artifact(tmp_path / "out").plan == modelled.plan


def test_the_original_program_is_the_result_where_no_part_has_a_plan(
    program: Program, whole: Partition
):
    def refuse(part: Program, *_: object) -> Ranking:
        raise UnsupportedError("no field judges it")

    result = optimize_parts(program, whole, refuse, ALONE)
    assert result.plan is None
    assert result.best == result.baseline
    assert result.notes[1] == "the original program is the result: small_part0 has no plan"
    assert result.notes[2] == "2 of 2 parts have no plan"
    assert result.notes[3] == "small_part0, small_part1: no field judges it"


def test_the_pipeline_says_that_it_cut(monkeypatch: pytest.MonkeyPatch, program: Program):
    monkeypatch.setattr(pipeline, "is_searched_whole", partial(fits, limits=LIMITS))
    monkeypatch.setattr(pipeline, "partition", partial(partition, limits=LIMITS))
    result = optimize(program, target="h200", effort="none", budget=1e6)
    assert result.notes[0].startswith("partitioned in 2 parts at T1 (")
    assert result.plan is not None


@pytest.mark.parametrize(("composite_us", "wins"), [(1.0, True), (99.0, False)])
def test_with_a_gpu_the_composite_races_the_whole_program(
    monkeypatch: pytest.MonkeyPatch,
    program: Program,
    whole: Partition,
    composite_us: float,
    wins: bool,
):
    raced = []

    def tune(tuned: Program, plans, against, **_):
        raced.append((tuned.name, len(plans), sorted(against)))
        # On a part alone eager is faster than every plan.
        is_whole = tuned is program
        eager = Measured("eager", time_us=10.0 if is_whole else 1.0)
        time_us = composite_us if is_whole else 5.0
        found = [Measured(f"plan {n}", p, time_us=time_us + n) for n, p in enumerate(plans)]
        best = min([eager, *found], key=lambda m: m.time_us)
        return TuneReport((*found, eager), best, eager, ())

    monkeypatch.setattr(tuner, "tune", tune)
    monkeypatch.setattr(baselines_module, "baselines", lambda *_, **__: {"eager": abs})
    monkeypatch.setattr(baselines_module, "WarmUp", IdleBaselines)
    job = replace(TIMED, request=replace(TIMED.request, baselines={"mine": abs}))
    result = optimize_parts(program, whole, rank, job)
    assert [name for name, *_ in raced] == ["small_part0", "small_part1", "small"]
    assert raced[-1][1:] == (1, ["eager", "mine"])
    assert (result.plan is not None) == wins
    assert result.best.time_us == min(10.0, composite_us)
    assert len(result.candidates) == 1
    faster = "the original program is faster than the parts in sequence"
    assert (faster in result.notes) == (not wins)
    if result.evidence is not None:
        assert result.evidence.float_source == "h200, full size"


def test_a_program_of_more_parts_than_there_is_time_for_is_not_even_cut(
    monkeypatch: pytest.MonkeyPatch, program: Program
):
    raced = []

    def tune(tuned: Program, plans, against, **_):
        raced.append((tuned, len(plans)))
        compiled, eager = Measured("compile", time_us=10.0), Measured("eager", time_us=12.0)
        return TuneReport((compiled, eager), compiled, compiled, (), original="compile")

    monkeypatch.setattr(tuner, "tune", tune)
    monkeypatch.setattr(baselines_module, "WarmUp", IdleBaselines)
    monkeypatch.setattr(pipeline, "partition_of", lambda *_, **__: pytest.fail("cut"))
    monkeypatch.setattr(pipeline, "least_parts", lambda _: 100)
    request = replace(TIMED.request, budget=12.0, baselines={"eager": abs, "compile": abs})
    result = pipeline._run(program, H200, request, measure=True)
    assert raced == [(program, 0)]
    assert (result.plan, result.original) == (None, "compile")
    assert "too short" in str(result.why_not)
    assert "nothing was searched" in result.notes[0]


@pytest.mark.parametrize("faster", ["triton", "cuda"])
def test_a_composite_of_each_back_end_is_timed(
    monkeypatch: pytest.MonkeyPatch, program: Program, whole: Partition, faster: str
):
    composites = []

    def tune(tuned: Program, plans, against, **_):
        if tuned is program:
            composites.extend(plans)
        eager = Measured("eager", time_us=100.0)
        found = [
            Measured(f"plan {n}", p, time_us=n / 100 + (0.5 if p.backend == faster else 5.0))
            for n, p in enumerate(plans)
        ]
        best = min([eager, *found], key=lambda m: m.time_us)
        return TuneReport((*found, eager), best, eager, ())

    def rank_both(part: Program, target: Target, request: Request) -> Ranking:
        found = rank(part, target, request)
        twins = [replace(i, plan=for_cuda(i.plan, H200)) for i in found.ranked]
        return replace(found, ranked=[*found.ranked, *twins])

    monkeypatch.setattr(tuner, "tune", tune)
    monkeypatch.setattr(baselines_module, "baselines", lambda *_, **__: {"eager": abs})
    monkeypatch.setattr(baselines_module, "WarmUp", IdleBaselines)
    result = optimize_parts(program, whole, rank_both, TIMED)
    # The one whose parts were faster is timed first.
    assert [p.backend for p in composites] == sorted(["triton", "cuda"], key=lambda b: b != faster)
    assert result.plan is not None
    assert (result.backend, result.plan.backend) == (faster, faster)
    assert result.evidence is not None
    assert result.evidence.samples > 0


def test_a_composite_that_is_another_program_is_left_out(
    monkeypatch: pytest.MonkeyPatch, program: Program, whole: Partition
):
    def sampled(*_: object, **__: object) -> SampleEvidence:
        return SampleEvidence(False, 1, 1, mismatch=Mismatch("Y", (3,)))

    monkeypatch.setattr(optimize_parts_module, "sampled_test", sampled)
    result = optimize_parts(program, whole, rank, ALONE)
    assert result.plan is None
    assert result.best == result.baseline
    assert any("were refused" in note for note in result.notes)


@pytest.mark.parametrize(
    ("seconds", "share", "tested"), [(7.0, 10.0, "aba"), (30.0, 10.0, "aa"), (30.0, None, "abac")]
)
def test_samples_of_composites_have_a_share_of_the_time(
    monkeypatch: pytest.MonkeyPatch, whole: Partition, seconds: float, share: float, tested: str
):
    """Of equal kernels one is tested; the first whatever it takes."""
    now = [50.0]

    def sampled(*_: object, **__: object) -> SampleEvidence:
        now[0] += seconds
        return SampleEvidence(True, 1, 1)

    def composite(kernels: str) -> Any:
        blocks = SimpleNamespace(program=whole.program, kernels=kernels, intermediates=())
        return SimpleNamespace(plan=SimpleNamespace(ugraph=SimpleNamespace(in_blocks=blocks)))

    monkeypatch.setattr(optimize_parts_module, "sampled_test", sampled)
    monkeypatch.setattr(optimize_parts_module.time, "monotonic", lambda: now[0])
    found = [composite(kernels) for kernels in "abac"]
    kept, notes = optimize_parts_module._tested(found, whole, 0, share)
    assert "".join(c.plan.ugraph.in_blocks.kernels for c in kept) == tested
    assert len(notes) == (len(tested) < len(found))


def test_a_plan_of_a_part_that_is_another_program_is_left_out(
    monkeypatch: pytest.MonkeyPatch, program: Program, whole: Partition
):
    def tune(tuned: Program, plans, against, **_):
        eager = Measured("eager", time_us=1.0)
        found = [Measured(f"plan {n}", p, time_us=5.0 + n) for n, p in enumerate(plans)]
        return TuneReport((*found, eager), eager, eager, ())

    refused = []

    def evidence(ranking: Ranking, plan: Plan, *args: object, **more: object) -> Evidence:
        if len(refused) < 2:
            refused.append(plan)
            raise VerificationError("Y[3] differs")
        return of_ranking(ranking, plan, *args, **more)

    of_ranking = Ranking.evidence
    monkeypatch.setattr(Ranking, "evidence", evidence)
    monkeypatch.setattr(tuner, "tune", tune)
    monkeypatch.setattr(baselines_module, "baselines", lambda *_, **__: {"eager": abs})
    monkeypatch.setattr(baselines_module, "WarmUp", IdleBaselines)
    result = optimize_parts(program, whole, rank, TIMED)
    (composite,) = result.candidates
    assert composite.plan is not None
    assert len(refused) == 2
    # Plans of one part differ in their options at least.
    first = composite.plan.options[: len(refused[0].options)]
    assert first not in [plan.options for plan in refused]


@pytest.mark.parametrize("left_s", [0.0, 2.5])
def test_parts_that_nothing_is_left_for_are_ranked_and_tried_with_the_whole(
    monkeypatch: pytest.MonkeyPatch, program: Program, whole: Partition, left_s: float
):
    raced: list[tuple[str, list[Plan]]] = []
    now = [100.0]

    def tune(tuned: Program, plans, against, **_):
        raced.append((tuned.name, list(plans)))
        # The first part takes all that its own search has.
        now[0] = 109.0 - left_s
        eager = Measured("eager", time_us=100.0)
        found = [Measured(f"plan {n}", p, time_us=5.0 + n) for n, p in enumerate(plans)]
        return TuneReport((*found, eager), found[0], eager, ())

    def rank_late(part: Program, target: Target, request: Request) -> Ranking:
        return rank(part, target, replace(request, budget=None))

    for module in (part_clock, optimize_parts_module):
        monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(part_clock, "_FEW", 1)
    monkeypatch.setattr(tuner, "tune", tune)
    monkeypatch.setattr(baselines_module, "baselines", lambda *_, **__: {"eager": abs})
    monkeypatch.setattr(baselines_module, "WarmUp", IdleBaselines)
    job = replace(TIMED, request=replace(TIMED.request, budget=9.0))
    optimize_parts(program, whole, rank_late, job)
    parts, (_, composites) = raced[:-1], raced[-1]
    assert len(parts) == 1
    kernels = [len(c.ugraph.kernels) for c in composites]
    ours = [sum(isinstance(k, BlockGraph) for k in c.ugraph.kernels) for c in composites]
    if left_s:
        # Both parts by kernels, and the untried one by PyTorch in case it does not run.
        assert sorted(ours) == [kernels[0] - 1, kernels[0]]
    else:
        assert all(n < len(c.ugraph.kernels) for n, c in zip(ours, composites, strict=True))


@pytest.mark.parametrize("late_s", [-40.0, 30.0])
def test_what_comes_after_parts_has_some_time_however_late_they_are(
    monkeypatch: pytest.MonkeyPatch, program: Program, whole: Partition, late_s: float
):
    """Numerical checks of large parts overran: convolutions as kernels of ours had 0 s, and a
    composite of theirs that was predicted to be twice as fast was never raced.
    """
    given: dict[str, float] = {}
    now = [100.0]

    def tune(tuned: Program, plans, against, *, budget_s: float, **_):
        given[tuned.name] = budget_s
        now[0] = 150.0 + late_s
        eager = Measured("eager", time_us=100.0)
        found = [Measured(f"plan {n}", p, time_us=5.0 + n) for n, p in enumerate(plans)]
        return TuneReport((*found, eager), found[0], eager, ())

    def more(*args: object, **_: object) -> list[Composite]:
        (request,) = (a for a in args if isinstance(a, Request))
        given["joined"] = request.budget or 0.0
        return []

    def rank_all(part: Program, target: Target, request: Request) -> Ranking:
        return rank(part, target, replace(request, budget=None))

    for module in (part_clock, optimize_parts_module):
        monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(tuner, "tune", tune)
    monkeypatch.setattr(baselines_module, "baselines", lambda *_, **__: {"eager": abs})
    monkeypatch.setattr(baselines_module, "WarmUp", IdleBaselines)
    job = replace(TIMED, request=replace(TIMED.request, budget=50.0), more=more)
    optimize_parts(program, whole, rank_all, job)
    late = late_s > 0
    assert given["joined"] == pytest.approx(2.0 if late else 12.0)
    assert given["small"] == pytest.approx(2.5 if late else 40.0)


def test_larger_parts_have_more_of_the_budget(monkeypatch: pytest.MonkeyPatch, whole: Partition):
    monkeypatch.setattr(part_clock.time, "monotonic", lambda: 100.0)
    counts = [operator_count(p) for p in whole.parts]
    assert counts[0] != counts[1]
    clocks = [PartClock(whole, (0, 1), H200, 12.0, 112.0) for _ in counts]
    budgets = [clock.share(n) or 0.0 for n, clock in enumerate(clocks)]
    assert (budgets[0] > budgets[1]) == (counts[0] > counts[1])
    # The composite has as much as a part has.
    assert sum(budgets) == pytest.approx(12.0 * len(budgets) / (len(budgets) + 1))
    # What one part leaves is the other one's.
    assert clocks[0].share(1) == pytest.approx(8.0)


def test_parts_that_there_is_no_time_for_are_not_begun(
    monkeypatch: pytest.MonkeyPatch, whole: Partition
):
    monkeypatch.setattr(part_clock.time, "monotonic", lambda: 100.0)
    clock = PartClock(whole, (0, 1), H200, 1.0, 100.9)
    assert [clock.share(n) for n in clock.order] == [0.0, 0.0]
    # Few parts have their shares, however long the first one took.
    late = PartClock(whole, (0, 1), H200, 9.0, 101.0)
    assert min(late.share(n) or 0.0 for n in late.order) > 2.0
    # Of many the first ones have enough, and none begins when the time is over.
    monkeypatch.setattr(part_clock, "_FEW", 1)
    many = PartClock(whole, (0, 1), H200, 9.0, 109.0)
    assert many.share(many.order[0]) == 5.0
    late = PartClock(whole, (0, 1), H200, 9.0, 101.0)
    assert [late.share(n) for n in late.order] == [0.0, 0.0]
    on_cpu = PartClock(whole, (0, 1), H200, 9.0, 101.0, measure=False)
    assert min(on_cpu.share(n) or 0.0 for n in on_cpu.order) > 2.0
    assert PartClock(whole, (0, 0), H200, 9.0, 109.0).order == (0,)
    assert PartClock(whole, (0, 1), H200, None, None).share(0) is None
