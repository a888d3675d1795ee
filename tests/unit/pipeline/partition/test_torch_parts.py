"""Parts that PyTorch computes beside kernels of ours, and parts that are alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from idle_baselines import IdleBaselines
from unit.partition.samples import inputs_of

from mirage_py.errors import UnsupportedError, ValidationError
from mirage_py.frontend.cached_kernels import what_serves
from mirage_py.frontend.spec import parse
from mirage_py.pipeline.partition.alike_parts import alike
from mirage_py.pipeline.partition.limits import PartitionLimits
from mirage_py.pipeline.partition.optimize_parts import PartJob, optimize_parts
from mirage_py.pipeline.partition.partition import Partition, partition
from mirage_py.pipeline.pipeline import normalise, rank_plans
from mirage_py.pipeline.selection.backends import for_cuda
from mirage_py.pipeline.selection.request import Request
from mirage_py.pipeline.selection.selection import Ranking
from mirage_py.reasons import Code, Server
from mirage_py.result import Result
from mirage_py.runtime.base.emission import TorchStep, emit_steps
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import check_interpreted, run_interpreted
from mirage_py.runtime.eager.torch_steps import program_action
from mirage_py.runtime.store.artifact import load_artifact
from mirage_py.runtime.tune import baselines as baselines_module
from mirage_py.runtime.tune import tuner
from mirage_py.runtime.tune.measured import Measured, TuneReport
from mirage_py.targets import H200, Target
from mirage_py.ugraph.building.torch_calls import called_program, torch_call
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import INDUCTOR, BlockGraph, LibraryCall, UGraph
from mirage_py.ugraph.text.json_form import dump_text, load_text
from mirage_py.ugraph.text.printing import format_ugraph
from mirage_py.ugraph.text.text_form import parse_ugraph
from mirage_py.verify.field_test.field_test import field_test

# Three layers of which the last two are alike, and a part with two results.
CHAIN = """
B = 5, D = 12, N = 12, M = 12, K = 12
X[B, D], V[D, N], W[N, M], U[M, K] : f32
H[b, n] = silu(sum[d](X[b, d] * V[d, n]))
G[b, m] = relu(sum[n](H[b, n] * W[n, m]))
Y[b, k] = relu(sum[m](G[b, m] * U[m, k]))
Z[b, k] = Y[b, k] * 2
"""
LIMITS = PartitionLimits(operators=3, reduced_dims=1)
ALONE = PartJob(H200, False, Request(backend="triton", effort="none"))


@pytest.fixture(scope="module")
def program() -> Program:
    return parse(CHAIN, name="chain")


@pytest.fixture(scope="module")
def whole(program: Program) -> Partition:
    found = partition(normalise(program), LIMITS)
    assert len(found.parts) == 3
    return found


def without(*names: str):
    """Ranks every part but these."""

    def rank(part: Program, target: Target, request: Request) -> Ranking:
        if part.name in names:
            raise UnsupportedError("no field judges it")
        return rank_plans(part, target, request)

    return rank


@pytest.fixture(scope="module")
def beside(program: Program, whole: Partition) -> Result:
    """Its middle part is PyTorch's."""
    return optimize_parts(program, whole, without("chain_part1"), ALONE)


def the_call(result: Result) -> tuple[LibraryCall, UGraph]:
    assert result.plan is not None
    (call,) = [k for k in result.plan.ugraph.kernels if isinstance(k, LibraryCall)]
    return call, result.plan.ugraph


def test_a_part_without_a_plan_is_pytorch_s(beside: Result, program: Program, whole: Partition):
    call, ugraph = the_call(beside)
    assert (call.name, call.op) == ("chain_part1", "aten")
    called = called_program(call, ugraph)
    assert called.nodes == whole.parts[1].nodes
    assert alike((called, whole.parts[1])) == (0, 0)
    assert sum(isinstance(k, BlockGraph) for k in ugraph.kernels) >= 2
    validate_ugraph(ugraph)
    assert check_interpreted(normalise(program), beside.plan, seed=1).passed
    field_test(whole.program, ugraph, trials=2, seed=0).require()
    assert "1 of 3 parts have no plan" in beside.notes
    assert "chain_part1: no field judges it" in beside.notes


def test_kernels_of_both_back_ends_run_beside_it(beside: Result, program: Program):
    assert beside.plan is not None
    arrays = inputs_of(program)
    want = evaluate_program(program, arrays, FloatMeaning())
    for found in (
        run_interpreted(beside.plan, arrays),
        run_emulated(for_cuda(beside.plan, H200), arrays),
    ):
        for name, value in want.items():
            torch.testing.assert_close(
                torch.tensor(found[name]), torch.tensor(value), atol=1e-4, rtol=1e-4
            )


def test_who_computes_what_is_said(beside: Result):
    assert beside.served.by is Server.IN_PARTS
    assert beside.served.why.code is Code.BESIDE_TORCH
    total = len(beside.plan.ugraph.kernels) if beside.plan else 0
    assert f"PyTorch has 1 of {total} steps: chain_part1" in str(beside.served)
    assert beside.document()["best"]["by_torch"] == ["chain_part1"]
    assert "aten chain_part1" in beside.explain()

    class Kernel:
        plan = beside.plan

    assert what_serves(Kernel(), abs).by is Server.IN_PARTS


def test_it_is_saved_and_read_again(beside: Result, tmp_path: Path):
    _, ugraph = the_call(beside)
    assert parse_ugraph(format_ugraph(ugraph)) == ugraph
    assert load_text(dump_text(ugraph), "test") == ugraph
    beside.save(tmp_path / "out")
    assert load_artifact(tmp_path / "out").plan == beside.plan


@pytest.mark.parametrize("what", ["op", "args", "result", "name", "body"])
def test_a_call_that_is_not_what_it_says_is_refused(beside: Result, what: str):
    call, ugraph = the_call(beside)
    assert call.body is not None
    looped = replace(call.body.sections[0], loop="b", tile=1)
    wrong = {
        "op": replace(call, op="matmul"),
        "args": replace(call, args=call.args[:1]),
        "result": replace(call, result="Y"),
        "name": replace(call, name="another"),
        "body": replace(call, body=replace(call.body, sections=(looped,))),
    }[what]
    kernels = tuple(wrong if k is call else k for k in ugraph.kernels)
    with pytest.raises(ValidationError):
        validate_ugraph(replace(ugraph, kernels=kernels))


def test_a_part_alike_is_searched_once(program: Program, whole: Partition):
    assert alike(whole.parts[:2]) == (0, 1)
    several = parse(CHAIN.replace("Z[b, k] = Y[b, k] * 2", "").replace("silu", "relu"), name="two")
    found = partition(normalise(several), LIMITS)
    assert alike(found.parts) == (0, 0, 0)
    ranked = []

    def rank(part: Program, target: Target, request: Request) -> Ranking:
        ranked.append(part.name)
        return rank_plans(part, target, request)

    result = optimize_parts(several, found, rank, ALONE)
    assert ranked == ["two_part0"]
    assert result.plan is not None
    assert check_interpreted(normalise(several), result.plan, seed=2).passed
    assert result.evidence is not None
    blocks = [k.name for k in result.plan.ugraph.kernels if isinstance(k, BlockGraph)]
    assert len(set(blocks)) == 3 * len([b for b in blocks if b.startswith("two_part0")])
    assert [report["kernel"] for report in result.evidence.code] == blocks


def test_parts_of_other_sizes_are_not_alike():
    text = CHAIN.replace("M = 12", "M = 13").replace("Z[b, k] = Y[b, k] * 2", "")
    found = partition(normalise(parse(text.replace("silu", "relu"), name="two")), LIMITS)
    assert alike(found.parts) == (0, 1, 2)


def timed(monkeypatch: pytest.MonkeyPatch, eager_us: Mapping[str, float]) -> list[UGraph]:
    """A race in which every plan takes 5 us, and eager PyTorch what is said; the composites."""
    raced: list[UGraph] = []

    def tune(tuned: Program, plans, against, **_):
        if tuned.name == "chain":
            raced.extend(p.ugraph for p in plans)
        eager = Measured("eager", time_us=eager_us.get(tuned.name, 50.0))
        found = [Measured(f"plan {n}", p, time_us=5.0 + n) for n, p in enumerate(plans)]
        best = min([eager, *found], key=lambda m: m.time_us)
        return TuneReport((*found, eager), best, eager, ())

    monkeypatch.setattr(tuner, "tune", tune)
    monkeypatch.setattr(baselines_module, "baselines", lambda *_, **__: {"eager": abs})
    monkeypatch.setattr(baselines_module, "WarmUp", IdleBaselines)
    return raced


def calls(ugraph: UGraph) -> list[tuple[str, str]]:
    return [(k.name, k.op) for k in ugraph.kernels if isinstance(k, LibraryCall)]


def test_holes_are_raced_by_inductor_and_by_operators(
    monkeypatch: pytest.MonkeyPatch, program: Program, whole: Partition
):
    raced = timed(monkeypatch, {})
    result = optimize_parts(program, whole, without("chain_part1"), replace(ALONE, measure=True))
    assert list(map(calls, raced)) == [[("chain_part1", INDUCTOR)], [("chain_part1", "aten")]]
    assert result.plan is not None
    assert result.served.by is Server.IN_PARTS


def test_pytorch_has_what_it_is_faster_at(
    monkeypatch: pytest.MonkeyPatch, program: Program, whole: Partition
):
    raced = timed(monkeypatch, {"chain_part0": 1.0})
    optimize_parts(program, whole, without(), replace(ALONE, measure=True))
    assert list(map(calls, raced)) == [[("chain_part0", "aten")], []]
    raced.clear()
    timed(monkeypatch, dict.fromkeys((p.name for p in whole.parts), 1.0))
    optimize_parts(program, whole, without(), replace(ALONE, measure=True))
    assert raced == []  # of nothing but PyTorch's parts there is no composite


def test_results_lie_in_memory_of_their_own():
    """What PyTorch returns as a view of an operand, or transposed, is copied."""
    text = (
        "B = 3, D = 4\nX[B, D] : f32\nY[b, d] = X[b, d]\nZ[d, b] = X[b, d]\nS[b] = sum[d](X[b, d])"
    )
    part = parse(text, name="views")
    ugraph = UGraph(part, (torch_call(part),))
    step = TorchStep(called_program(torch_call(part), ugraph), is_compiled=False)
    places = {"X": 0, "Y": 1, "Z": 2, "S": 3}
    run = program_action(step, places)
    for _ in range(2):
        x = torch.randn(3, 4)
        memory = [x, torch.empty(3, 4), torch.empty(4, 3), torch.empty(3)]
        given = list(memory)
        run(memory, 0)
        torch.testing.assert_close(memory[1], x)
        torch.testing.assert_close(memory[2], x.T)
        torch.testing.assert_close(memory[3], x.sum(1))
        assert memory[1] is given[1]
        assert memory[2] is given[2]
        assert all(m.is_contiguous() for m in memory)
        assert memory[1].data_ptr() != x.data_ptr()


def test_the_step_of_a_plan_is_its_program(beside: Result):
    assert beside.plan is not None
    steps = [s for s in emit_steps(beside.plan) if isinstance(s, TorchStep)]
    assert [(s.name, s.is_compiled) for s in steps] == [("chain_part1", False)]
