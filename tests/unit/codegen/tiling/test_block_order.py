"""Orders of blocks: each visits every block once, and the result is the same."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from unit.codegen.tiling.test_unmasked_tiles import SEEN, masked_attention

from mirage_py.codegen.tiling.block_order import (
    block_numbers,
    can_group,
)
from mirage_py.codegen.triton.module import emit_triton
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.search.rank.neighbours import neighbours
from mirage_py.targets import target
from mirage_py.ugraph.ir.launch_choices import BlockOrder
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.text.text_form import parse_ugraph

AXES = [
    (("a", 3), ("b", 16)),
    (("a", 5), ("b", 24), ("c", 2)),
    (("a", 4), ("b", 6)),
    (("a", 7),),
    (),
]


def places(axes: tuple[tuple[str, int], ...], **how: object) -> list[tuple[int, ...]]:
    """Where the blocks lie, in the order of their ids."""
    numbers = block_numbers(axes, **how)
    total = int(np.prod([n for _, n in axes]))
    counts = {f"{d}_blocks": n for d, n in axes}
    return [
        tuple(eval(numbers[d], {"pid": pid, **counts}) for d, _ in axes) for pid in range(total)
    ]


@pytest.mark.parametrize("order", [None, *BlockOrder])
@pytest.mark.parametrize("axes", AXES)
def test_every_block_is_visited_once(axes, order):
    found = places(axes, order=order, uneven=("b",))
    assert sorted(found) == sorted(product(*(range(n) for _, n in axes)))


@pytest.mark.parametrize("order", [None, *BlockOrder])
@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("named", ["a", "b", "ab"])
def test_numbers_of_blocks_may_have_names(axes, order, named):
    counts = {d: f"{d}_blocks" for d, _ in axes if d in named}
    found = places(axes, order=order, uneven=("b",), counts=counts)
    if (order == BlockOrder.GROUPED and "b" in named) or (
        order == BlockOrder.LONGEST and set(named) & {"a", "c"}
    ):
        assert sorted(found) == sorted(product(*(range(n) for _, n in axes)))
    else:
        assert found == places(axes, order=order, uneven=("b",))


def test_a_group_has_eight_places_of_the_second_axis():
    found = places(AXES[0], order=BlockOrder.GROUPED)
    assert found[:9] == [(0, b) for b in range(8)] + [(1, 0)]
    assert found[24] == (0, 8)
    assert can_group(AXES[0])
    assert not can_group(AXES[2])
    assert places(AXES[2], order=BlockOrder.GROUPED) == places(AXES[2])


def test_backwards_turns_only_what_is_uneven():
    assert places((("a", 2), ("b", 3)), order=BlockOrder.BACKWARDS, uneven=("b",))[:3] == [
        (0, 2), (1, 2), (0, 1),
    ]  # fmt: skip


def test_the_longest_of_eight_places_side_by_side_come_first():
    found = places((("t", 3), ("h", 16)), order=BlockOrder.LONGEST, uneven=("t",))
    assert found[:9] == [(2, h) for h in range(8)] + [(1, 0)]
    assert found[23:25] == [(0, 7), (2, 8)]


def test_the_longest_of_all_places_come_first_where_they_are_no_multiple_of_eight():
    found = places((("t", 3), ("b", 3), ("h", 4)), order=BlockOrder.LONGEST, uneven=("t",))
    assert [t for t, _, _ in found] == [2] * 12 + [1] * 12 + [0] * 12


PRODUCT = """
ugraph product
dim b = 20
dim n = 250
dim d = 40
input X[20, 40] : f16
input W[40, 250] : f16
output Y[20, 250] : f32
program {
  %0 = load X[b, d]
  %1 = load W[d, n]
  %2 = matmul[d] %0, %1
  return Y[b, n] = %2
}
kernel product {
  grid b by 16, n by 16
  loop d by 16 {
    %0 = load X[b, d]
    %1 = load W[d, n]
    %2 = matmul[d] %0, %1
    %3 = accum_sum %2
  }
  store Y[b, n] = %3
}
"""


def ordered(plan: Plan, order: BlockOrder) -> Plan:
    (options,) = plan.options
    return Plan(plan.ugraph, (LaunchConfig(4, options.num_stages, block_order=order),))


@pytest.mark.parametrize("order", list(BlockOrder))
def test_a_product_is_the_same(order):
    plan = ordered(Plan(parse_ugraph(PRODUCT), (LaunchConfig(4, (2,)),)), order)
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype(np.float16).astype(float) for s in ((20, 40), (40, 250)))
    got = run_interpreted(plan, {"X": x, "W": w})["Y"]
    np.testing.assert_allclose(got, x @ w, rtol=1e-5, atol=1e-5)
    (kernel,) = emit_triton(plan)
    assert ("% 16) // 8" in kernel.source) == (order == BlockOrder.GROUPED)


def test_masked_attention_begins_with_its_longest_blocks():
    plan = ordered(masked_attention(SEEN["s <= t"], (16, 16)), BlockOrder.BACKWARDS)
    (kernel,) = emit_triton(plan)
    assert "t_low = (3 - pid) * 16" in kernel.source
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=shape) for shape in ((50, 16), (70, 16), (70, 16)))
    seen = np.arange(70) <= np.arange(50)[:, None]
    weights = np.where(seen, np.exp(q @ k.T), 0)
    want = weights @ v / weights.sum(1, keepdims=True)
    got = run_interpreted(plan, {"Q": q, "K": k, "V": v})["O"]
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_the_tuner_is_offered_both():
    h200 = target("h200")
    plan = Plan(parse_ugraph(PRODUCT), (LaunchConfig(4, (2,)),))
    offered = {p.options[0].block_order for p in neighbours(plan, h200)}
    assert offered == {None, BlockOrder.GROUPED}
    grouped = ordered(plan, BlockOrder.GROUPED)
    assert None in {p.options[0].block_order for p in neighbours(grouped, h200)}
    masked = masked_attention(SEEN["s <= t"], (16, 16))
    offered = {p.options[0].block_order for p in neighbours(masked, h200)}
    assert offered >= {BlockOrder.BACKWARDS, BlockOrder.LONGEST}
