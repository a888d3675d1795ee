"""Plans for a chain: all blocks run at once, and first weights are on their way before the wait."""

from __future__ import annotations

from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import rank_plans
from mirage_py.pipeline.selection.request import Request
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.search.rank.streaming import is_streaming
from mirage_py.targets import H200
from mirage_py.ugraph.ir.launch_choices import NextStart
from mirage_py.ugraph.ir.plan import chained
from mirage_py.ugraph.ir.ugraph import BlockGraph

SPEC = """D = 2048, K = {k}
x[K], W[D, K], r[D] : bf16
Y[d] : bf16 = r[d] + sum[k](x[k] * W[d, k])
"""


def test_one_row_times_weights_has_a_plan_for_a_chain() -> None:
    request = Request("h200", backend="cuda", streaming=True)
    ranking = rank_plans(parse(SPEC.format(k=8192), name="down"), H200, request)
    plan = ranking.instances[0].plan
    assert is_streaming(plan, H200)
    # Two blocks on each SM, five of six stages of 8 KB ahead.
    (block,) = plan.ugraph.kernels
    assert isinstance(block, BlockGraph)
    assert [a.tile for a in block.grid] == [8]
    assert plan.options[0].num_stages == (6,)
    (kernel,) = emit_kernels(chained(plan, NextStart.WAITED, ("W",)))
    text = kernel.source
    text = text[text.index("__global__") :]
    assert text.index("copy_early(ahead") < text.index("wait_for_kernel_before(")
    assert text.index("wait_for_kernel_before(") < text.index("next_kernel_may_start()")


def test_many_rows_have_none() -> None:
    spec = "B = 256, D = 256, K = 512\nx[B, K], W[D, K] : bf16\n"
    spec += "Y[b, d] : bf16 = sum[k](x[b, k] * W[d, k])"
    request = Request("h200", backend="cuda", streaming=True)
    ranking = rank_plans(parse(spec, name="many"), H200, request)
    assert ranking.instances
    assert not is_streaming(ranking.instances[0].plan, H200)
