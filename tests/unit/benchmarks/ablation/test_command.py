"""The ablation of the CUDA emitter: variants, what they are made of, their times."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from cuda_plans import for_cuda
from plans import attention_plan, rms_plan

from benchmarks.ablation import command
from benchmarks.ablation.ablation_row import Bench, ablation_row, emitted_only
from benchmarks.ablation.ablation_table import markdown, means, text
from benchmarks.ablation.ablation_variants import FULL, structure, variants
from benchmarks.suite import families
from benchmarks.workloads.suites import named
from mirage_py.errors import CompileError
from mirage_py.reasons import Code, reason
from mirage_py.runtime.compile.compile_cuda import CudaSource, compile_cuda
from mirage_py.runtime.compile.cuda_compiler import cuda_compiler
from mirage_py.runtime.numerical_check.check_pool import Trial
from mirage_py.runtime.timing.timing import Timed
from mirage_py.targets import target
from mirage_py.ugraph.ir.launch_choices import Arch
from mirage_py.verify.numerical_check.numerical_check import FloatEvidence

(WORKLOAD,) = named("smoke", ["smoke_rmsnorm-b1"])
FOUR = ["thread graphs off", "layouts naive", "memory plan off", "these four off"]
ATTENTION = for_cuda(attention_plan(), num_stages=2)


@pytest.fixture(scope="module")
def described():
    """The row of a small attention kernel, without a GPU and without a compiler."""
    return ablation_row(WORKLOAD, [ATTENTION], target("h200"), emitted_only, None)


def of(row, name):
    return next(line for line in row["variants"] if line["name"] == name)


def test_each_decision_shows_in_the_text(described):
    assert [line["name"] for line in described["variants"]] == [FULL, *FOUR]
    full, off = of(described, FULL)["kernels"][0], of(described, "these four off")["kernels"][0]
    assert full["barriers"] < of(described, "layouts naive")["kernels"][0]["barriers"]
    assert full["smem_bytes"] < of(described, "memory plan off")["kernels"][0]["smem_bytes"]
    assert full["barriers"] < off["barriers"]
    assert full["smem_bytes"] < off["smem_bytes"]
    assert (full["registers"], full["threads"], full["stages"]) == (None, 128, 2)
    assert "us" not in of(described, FULL)


def test_stages_that_shared_memory_had_no_room_for_are_not_counted():
    deep = for_cuda(rms_plan(64, 4096, 512, (64, 64, 64)), num_stages=8)
    found = {v.name: structure(v, ())[0]["stages"] for v in variants(deep) if v.name != FOUR[0]}
    assert found["these four off"] < found[FULL] < 8


def test_a_variant_that_does_not_fit_says_so():
    wide = for_cuda(rms_plan(128, 4096, 512, (128, 128, 256)), num_stages=1)
    full, *others = variants(wide)
    assert not full.fault
    (off,) = (v for v in others if v.name == "these four off")
    assert "bytes of shared memory, and a block has" in off.fault
    assert structure(off, ()) == []


def test_what_a_plan_has_of_hopper_is_switched_off_too():
    plan = for_cuda(rms_plan(64, 256, 128, (64, 64, 64)), num_stages=2)
    options = replace(plan.options[0], arch=Arch.SM_90A, descriptors=True, producer_warps=True)
    found = {v.name: v for v in variants(replace(plan, options=(options,)))}
    assert not any(v.fault for v in found.values())
    kept = {name: len(v.kernels[0].tensor_maps) for name, v in found.items()}
    assert kept["no producer warps"] == kept[FULL] > kept["copies by threads"] == 0
    assert "no producer warps" not in {v.name for v in variants(plan)}


def test_registers_are_those_of_the_compiler():
    try:
        cuda_compiler()
    except CompileError as error:
        pytest.skip(error.what)
    full, *_ = variants(ATTENTION)
    facts = [compile_cuda(CudaSource.of(k), 90) for k in full.kernels]
    (kernel,) = structure(full, facts)
    assert 16 <= kernel["registers"] <= 255
    assert kernel["spills"] == 0


# -- times, of a GPU that is not there -------------------------------------------------------------


def trial(us: float, *, passed: bool = True) -> Trial:
    why = None if passed else reason(Code.NOT_RUN, "too far off\nby far")
    evidence = FloatEvidence(1e-3, 1e-2, None, passed, why)
    return Trial(evidence, Timed(us, us, us, 9) if passed else None)


class Gpu:
    """Plan n of the ranking takes 3 - n microseconds, the last is wrong on adversarial inputs;
    variants take 2, 3, ... and the naive one is wrong.
    """

    def __init__(self, ranked):
        self.ranked = ranked
        self.races = []

    def first(self, plans):
        if list(plans) == self.ranked:
            return [trial(3.0 - n) for n in range(len(plans))]
        flags = [p.options[0].flags for p in plans]
        return [trial(1.0, passed=("layouts", "naive") not in f or len(f) > 1) for f in flags]

    def rest(self, plans):
        wrong = self.ranked[-1]
        return [trial(1.0, passed=p != wrong).evidence for p in plans]

    def race(self, plans):
        self.races.append(plans)
        return [Timed(2.0 + n, 1.9 + n, 2.1 + n, 31) for n in range(len(plans))]


@pytest.fixture(scope="module")
def measured():
    others = (attention_plan(), 1), (attention_plan(tiles=(16, 64)), 2)
    ranked = [ATTENTION, *(for_cuda(plan, num_stages=stages) for plan, stages in others)]
    gpu = Gpu(ranked)
    bench = Bench(gpu.first, gpu.rest, gpu.race)
    row = ablation_row(WORKLOAD, ranked, target("h200"), emitted_only, bench)
    return ranked, gpu, row


def test_the_fastest_plan_that_is_right_is_taken_apart(measured):
    ranked, gpu, row = measured
    (race,) = gpu.races
    assert race[0] == ranked[1]
    assert row["tried"] == 3
    assert row["plan"][0]["num_stages"] == [1]
    full = of(row, FULL)
    assert (full["us"], full["slower"], full["p80_us"]) == (2.0, 1.0, 2.1)
    assert of(row, "thread graphs off")["slower"] == 1.5


def test_a_wrong_variant_has_a_reason_and_no_time(measured):
    naive = of(measured[2], "layouts naive")
    assert naive["fault"] == "too far off"
    assert "us" not in naive
    assert naive["kernels"]


def test_where_no_plan_runs_it_is_said():
    def broken(plans):
        return [replace(o, reason="no such instruction\nat all") for o in emitted_only(plans)]

    with pytest.raises(CompileError, match="none of 1 CUDA plans runs"):
        ablation_row(WORKLOAD, [ATTENTION], target("h200"), broken, None)


# -- the table and the command ---------------------------------------------------------------------


def test_the_table(measured):
    document = {"rows": [measured[2]]}
    lines = text(document).splitlines()
    assert lines[1].split()[:4] == ["smoke_rmsnorm-b1", "full", "2.00", "1.00x"]
    assert lines[3].endswith("too far off")
    assert "| smoke_rmsnorm-b1 | full | 2.00 | 1.00x | - | - |" in markdown(document)
    assert means([measured[2]]).startswith(
        "Geometric means, over as many programs: thread graphs off 1.50x (1), "
    )


def test_without_a_gpu_the_command_describes(tmp_path, monkeypatch, capsys):
    def none():
        raise CompileError("there is no compiler for CUDA kernels")

    monkeypatch.setattr(command.gpus, "visible", lambda: ())
    monkeypatch.setattr(command, "cuda_compiler", none)
    triton = attention_plan()
    found = [families.Candidate(p, 1.0) for p in (triton, ATTENTION)]
    searched = families.Searched(ATTENTION.ugraph.program, tuple(found), 0.1, 0.1)
    families.write(searched, tmp_path / f"{WORKLOAD.key}.json")
    only = f"--only={WORKLOAD.key},softmax-b1"
    arguments = [str(tmp_path), "-o", str(tmp_path / "out"), "--commit", "abc", only]
    assert command.main(arguments) == 1
    document = json.loads((tmp_path / "out/none-cuda-ablation.json").read_text())
    assert (document["schema"], document["commit"]) == (1, "abc")
    (row,) = document["rows"]
    assert [line["name"] for line in row["variants"]] == [FULL, *FOUR]
    assert list(document["failed"]) == ["softmax-b1"]
    assert "Nothing was timed." in capsys.readouterr().out
