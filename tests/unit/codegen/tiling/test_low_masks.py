"""Exponentials under a mask with a very low number: masked again where rows have something else."""

from __future__ import annotations

import numpy as np
import pytest
import several_kernels
import torch
from families import stabilize

from mirage_py.codegen.cuda.kernel.module import emit_cuda
from mirage_py.codegen.lowering.lowering import lowered
from mirage_py.codegen.tiling.low_masks import with_low_masks
from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.codegen.tiling.unmasked_tiles import mean_iterations
from mirage_py.codegen.triton.module import emit_triton
from mirage_py.frontend.spec import parse
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.text.index_text import read_predicate

LOWEST = torch.finfo(torch.float32).min
LOW = {"f32": LOWEST, "bf16": torch.finfo(torch.bfloat16).min}
T, S, D = 50, 70, 16
PROGRAM = """
T = 50, S = 70, D = 16
Q[T, D], K[S, D], V[S, D]{more} : bf16
let w[t, s] = exp({logits})
O[t, e] = sum[s](w[t, s] * V[s, e]) / sum[s](w[t, s])
"""
KERNEL = """
kernel attend {{
  grid t by 16
  %0 = load Q[t, d]
  loop s by 16 {{
    %1 = load K[s, d]
    %2 = matmul[d] %0, %1
    %3 = {read}
    %4 = mask {mask}
    %5 = const {low!r}
    %6 = const 0.0
    %7 = {first}
    %8 = {second}
    %9 = exp %8
    %10 = sum[s] %9
    %11 = accum_sum %10
    %12 = load V[s, e]
    %13 = matmul[s] %9, %12
    %14 = accum_sum %13
  }}
  %15 = div %14, %11
  store O[t, e] = %15
}}
"""
SCORE = "sum[d](Q[t, d] * K[s, d])"
FORMS = {
    "chosen": ("where({mask}, {score}, {low!r})", "abs %2", "where %4, %2, %5"),
    "added": ("{score} + where({mask}, 0.0, {low!r})", "where %4, %6, %5", "add %2, %7"),
    "capped": ("where({mask}, tanh({score}), {low!r})", "tanh %2", "where %4, %7, %5"),
    "with_input": ("where({mask}, {score} + M[t, s], {low!r})", "add %2, %3", "where %4, %7, %5"),
}  # fmt: skip
CAUSAL, WINDOW, PREFIX = "(s <= t)", "((s <= t) & (s > t - 20))", "(s < 9)"
EMPTY_ROWS = ("(s < t)", "(s + 7 <= t)", "(s > t + 40)")


def attend(form: str, mask: str, low: float) -> Plan:
    logits, first, second = FORMS[form]
    more, read = (", M[T, S]", "load M[t, s]") if "M[" in logits else ("", "const 1.0")
    text = PROGRAM.format(more=more, logits=logits.format(mask=mask, score=SCORE, low=low))
    kernel = KERNEL.format(read=read, mask=mask, low=low, first=first, second=second)
    graph = stabilize(several_kernels.over(parse(text), kernel))
    return Plan(graph, (LaunchConfig(4, (2,)),))


def block_of(plan: Plan) -> BlockGraph:
    (block,) = plan.ugraph.kernels
    assert isinstance(block, BlockGraph)
    return block


def is_shorter(plan: Plan) -> bool:
    """Whether the loop is short in what is ranked, and in both texts."""
    (triton,) = emit_triton(plan)
    (cuda,) = emit_cuda(plan)
    found = [
        mean_iterations(Tiling(plan.ugraph.scope, block_of(plan)), 1) < 5.0,
        "range(0, 70," not in triton.source,
    ]
    assert found[0] == found[1]
    assert found[0] == ("s_start < 70;" not in cuda.source)
    return found[0]


def check(plan: Plan, form: str, mask: str, low: float, scale: float = 1.0) -> None:
    """The kernel against torch, in float32."""
    rng = np.random.default_rng(0)
    drawn = {n: rng.normal(size=(T if n == "Q" else S, D)) for n in "QKV"}
    drawn["M"] = np.where(np.arange(S) < 12, -np.inf, rng.normal(size=(T, S)))
    drawn["M"][T - 1] = -1.0
    drawn["Q"] *= scale
    x = {n: torch.from_numpy(a).bfloat16() for n, a in drawn.items()}
    score = x["Q"].float() @ x["K"].float().T
    holds = read_predicate(mask).evaluate({"t": np.arange(T)[:, None], "s": np.arange(S)})
    keep = torch.from_numpy(np.broadcast_to(holds, (T, S)).copy())
    if form == "added":
        logits = score + torch.where(keep, 0.0, low)
    else:
        score = torch.tanh(score) if form == "capped" else score
        score = score + x["M"].float() if form == "with_input" else score
        logits = torch.where(keep, score, low)
    want = (logits.softmax(-1) @ x["V"].float()).numpy()
    got = run_interpreted(
        plan, {n: a.double().numpy() for n, a in x.items() if n in plan.ugraph.tensors}
    )["O"]
    np.testing.assert_allclose(got, want, atol=0.02, rtol=0.02)


@pytest.mark.covering(2)
@pytest.mark.parametrize("kind", LOW)
@pytest.mark.parametrize("mask", [CAUSAL, WINDOW, PREFIX])
@pytest.mark.parametrize("form", ["chosen", "added", "capped"])
def test_rows_that_are_covered_skip_tiles(form: str, mask: str, kind: str):
    plan = attend(form, mask, LOW[kind])
    assert is_shorter(plan)
    check(plan, form, mask, LOW[kind])


def test_scores_that_are_far_below_zero():
    plan = attend("chosen", CAUSAL, LOWEST)
    check(plan, "chosen", CAUSAL, LOWEST, scale=1e27)


@pytest.mark.parametrize("mask", EMPTY_ROWS)
def test_rows_that_are_masked_wholly_stay_the_mean(mask: str):
    plan = attend("chosen", mask, LOWEST)
    assert not is_shorter(plan)
    check(plan, "chosen", mask, LOWEST)


def test_an_input_that_is_added_may_mask_the_rest_of_a_row():
    plan = attend("with_input", CAUSAL, LOWEST)
    assert not is_shorter(plan)
    check(plan, "with_input", CAUSAL, LOWEST)


@pytest.mark.parametrize("low", [-1e4, -65504.0, -1e9])
def test_what_a_score_may_be_is_a_number(low: float):
    plan = attend("chosen", CAUSAL, low)
    assert not is_shorter(plan)
    check(plan, "chosen", CAUSAL, low, scale=1e10)


def test_sizes_that_are_known_at_launch_cover_a_causal_mask_only():
    for mask, is_covered in ((CAUSAL, True), (WINDOW, False)):
        plan = attend("chosen", mask, LOWEST)
        block = block_of(plan)
        changed = with_low_masks(block, plan.ugraph.program.sizes, ("t", "s")) != block
        assert changed == is_covered


def test_the_kernel_is_that_of_minus_infinity():
    plan = attend("chosen", CAUSAL, LOWEST)
    (typed,) = lowered(plan.ugraph, [block_of(plan)]).blocks
    constants = [n.attr for n in typed.block.nodes if n.op == "const"]
    assert -np.inf in constants
    assert LOWEST not in constants
