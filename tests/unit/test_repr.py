"""What values print as at a prompt: a few lines, whatever they hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
import samples
from plans import rms_plan

from mirage_py.frontend.superoptimized import SuperoptimizedFunction
from mirage_py.reasons import Code, Reason
from mirage_py.result import Candidate, Evidence, Result, SearchSummary, Timing
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.runtime.store.artifact import Artifact, OriginalProgram
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.program import Program, Tensor

PLAN = rms_plan()
PROGRAM = PLAN.ugraph.program
REPORT = {"numbers": list(range(10_000))}
EVIDENCE = Evidence(
    4, (5, 7), 5.5e-27, Reason(Code.DIFFERENT), True, 9e-4, 0.013, "interpreter", 3, proof=REPORT
)
SEARCH = SearchSummary(0.5, 378, 15, True, {}, 0.1, 2.0, kinds={"one kernel": 9}, ranked=160)
TIME, BASELINE = Timing("rms", 5.0, "model"), Timing("fused operators", 20.0, "model")
RESULT = Result(
    PROGRAM, "h200", "triton", BASELINE, TIME, PLAN, EVIDENCE, SEARCH,
    (PLAN.ugraph,) * 60, tuple(Candidate(PLAN, TIME) for _ in range(160)),
)  # fmt: skip
REFUSED = replace(RESULT, plan=None, best=BASELINE, why_not=Reason(Code.NONE_VERIFIED))
FUNCTION = SuperoptimizedFunction(lambda x: x)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (PROGRAM, ["Program 'rms'", "X[7, 96] : f16", "-> Y[7, 50] : f16", "nodes"]),
        (PLAN.ugraph, ["UGraph of 'rms'", "grid "]),
        (PLAN.ugraph.kernels[0], ["<kernel ", "loop d by ", "nodes"]),
        (PLAN, ["Plan by triton", "<kernel ", "4 warps; stages 3"]),
        (LaunchConfig(8, (2,), early_start=True), ["<8 warps; stages 2; start early>"]),
        (EVIDENCE, ["4 trials and 3 samples", "bound 5.5e-27", "; proved", "0.0009 of 0.013"]),
        (SEARCH, ["378 candidates", "9 families", "15 families verified", "160 plans"]),
        (Candidate(PLAN, TIME, kind="one kernel"), ["5.00 us predicted (rms)", "one kernel"]),
        (Candidate(None, TIME, False, Reason(Code.DIFFERENT)), ["dropped: the two differ"]),
        (RESULT, ["'rms' on h200", "4.00x predicted beside 20.00 us", "mirage_py", "5.5e-27"]),
        (REFUSED, ["1.00x predicted", "served by eager", "no family passed verification"]),
        (PlanRunner(PLAN), ["PlanRunner of <Program 'rms'", "Plan by triton"]),
        (Artifact(PROGRAM, PLAN, REPORT), ["Artifact", "<Program 'rms'", "Plan by triton"]),
        (OriginalProgram({"eager": abs}, {}), ["OriginalProgram: eager: "]),
        (FUNCTION, ["superoptimized <lambda>: not called yet"]),
    ],
)
def test_it_says_what_it_is_in_a_few_lines(value: object, said: list[str]):
    text = repr(value)
    assert all(part in text for part in said), text
    assert len(text) < 600
    assert text.count("\n") < 5


def test_many_inputs_and_kernels_are_counted():
    tensors = tuple(Tensor(f"T{n}", (2,), PROGRAM.inputs[0].dtype) for n in range(100))
    wide = Program("wide", (), tensors, (), ())
    assert "T7[2] : f16, 92 more -> ;" in repr(wide)
    deep = replace(PLAN.ugraph, kernels=PLAN.ugraph.kernels * 40)
    assert "39 more" not in repr(PLAN.ugraph)
    assert f"{40 * len(PLAN.ugraph.kernels) - 8} more" in repr(deep)
    assert len(repr(deep)) < 800


def test_digests_are_those_of_earlier_versions():
    """They are taken of all fields, not of what a value prints as: caches and artifacts stay."""
    graph = samples.ugraph("rms_norm_matmul")
    assert graph.digest.startswith("f462b235c816bf1e994fc10fcab38a789b")
    assert graph.kernels[0].digest.startswith("701dd643d0380b0747d008da052b91e7")
