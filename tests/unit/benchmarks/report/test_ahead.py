"""Winners compiled for GPUs that are not here: the fastest plan that fits, and what did not."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import pytest
from plans import rms_plan

from benchmarks.report.ahead import fastest_plans, for_target, report, table, with_winners_first
from mirage_py.codegen.cuda.kernel.module import emit_cuda
from mirage_py.errors import InputError
from mirage_py.reasons import Code, reason
from mirage_py.runtime.compile.compile_pool import CompileOutcome
from mirage_py.runtime.compile.compiled_facts import CompiledFacts
from mirage_py.targets import target
from mirage_py.ugraph.ir.launch_choices import Arch
from mirage_py.ugraph.text.json_form import to_json

PLANS = [rms_plan(tiles=(16, 32, n)) for n in (16, 32, 64)]
ROW = {"workload": "rms", "batch": 1, "digest": "p1"}


def measured(digest: str, us: float | None, plan: int, *, passed: bool = True) -> dict[str, object]:
    return {
        "key": "rms-b1",
        "kind": "one kernel",
        "digest": digest,
        "us": us,
        "passed": passed,
        "plan": to_json(PLANS[plan]),
    }


class Pool:
    """Kernels of plan n take n times 100 KB; plan 2 does not compile."""

    def compile(self, plans, capability):
        return [self.outcome(PLANS.index(p), capability) for p in plans]

    @staticmethod
    def outcome(number, capability):
        if number == 2:
            return CompileOutcome(reason=reason(Code.NOT_COMPILED, "no such instruction\nat all"))
        facts = CompiledFacts("k", capability, number * 200_000, 40, 0, 1000, 0.1)
        return CompileOutcome((facts,))


def test_the_winner_comes_first_and_then_the_fastest(tmp_path):
    lines = [
        measured("p0", 3.0, 0),
        measured("p2", 1.0, 2),
        measured("p1", 2.0, 1),
        measured("wrong", 0.5, 0, passed=False),
        measured("untimed", None, 0),
    ]
    with gzip.open(tmp_path / "measurements.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    found = fastest_plans(tmp_path, ["rms-b1"])["rms-b1"]
    assert [line["digest"] for line in found] == ["p2", "p1", "p0"]
    assert [line["digest"] for line in with_winners_first(found, "p1")] == ["p1", "p2", "p0"]


def test_what_does_not_fit_a_target_is_named_and_the_next_is_taken():
    lines = [measured("p1", 1.0, 1), measured("p2", 2.0, 2), measured("p0", 3.0, 0)]
    found = report([ROW], {"rms-b1": lines}, [target("a100"), target("h100")], Pool())
    small, large = found
    assert (small["target"], small["digest"], small["fits"]) == ("a100", "p0", True)
    assert [r["digest"] for r in small["refused"]] == ["p1", "p2"]
    assert "200000 bytes" in small["refused"][0]["reason"]
    assert small["refused"][1]["reason"] == "no such instruction"
    assert (large["digest"], large["refused"]) == ("p1", [])
    assert large["kernels"][0]["smem_bytes"] == 200_000
    assert "| rms-b1 | 40 | 0 | 0 | after 2 others | 40 | 0 | 195 | the winner |" in table(found)


def test_what_a_gpu_has_no_instructions_for_is_left_out():
    plan = PLANS[0]
    plain = replace(plan.options[0], reversed_axes=True)
    plan = replace(plan, options=(replace(plain, descriptors=True, early_start=True),))
    assert for_target(plan, target("h100")) == plan
    assert for_target(plan, target("a100")).options == (plain,)


def test_cuda_plans_are_emitted_for_the_target_alone():
    options = replace(
        PLANS[0].options[0],
        arch=Arch.SM_90A,
        descriptors=True,
        producer_warps=True,
        early_start=True,
    )
    plan = replace(PLANS[0], backend="cuda", options=(options,))
    (small,), (large,) = (emit_cuda(for_target(plan, target(t))) for t in ("a100", "h100"))
    assert (small.capability, large.capability) == (80, 90)
    assert (small.tensor_maps, small.uses_pdl) == ((), False)
    assert for_target(plan, target("h100")) == plan


def test_the_plans_of_one_back_end(tmp_path):
    lines = [measured("p0", 1.0, 0), measured("p1", 2.0, 1)]
    lines[1]["plan"] = to_json(replace(PLANS[1], backend="cuda"))
    with gzip.open(tmp_path / "measurements.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    for backend, digests in (("cuda", ["p1"]), ("triton", ["p0"]), ("auto", ["p0", "p1"])):
        found = fastest_plans(tmp_path, ["rms-b1"], backend)["rms-b1"]
        assert [line["digest"] for line in found] == digests


def test_where_none_fits_it_is_said():
    found = report([ROW], {"rms-b1": [measured("p2", 2.0, 2)]}, [target("a100")], Pool())
    assert not found[0]["fits"]
    assert "none fits" in table(found)


def test_a_folder_without_measurements_is_refused(tmp_path):
    with pytest.raises(InputError, match="is missing"):
        fastest_plans(tmp_path, ["rms-b1"])
