"""Plans of kernels: what is decided before the text, and that the text follows it."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest
from cuda_plans import for_cuda, kernel_of, planned
from plans import attention_plan, rms_plan

from mirage_py.codegen.cuda.kernel import module
from mirage_py.codegen.cuda.kernel.kernel import KernelEmitter
from mirage_py.codegen.cuda.plan.kernel_plan import KernelPlan
from mirage_py.codegen.cuda.plan.pipeline_plan import Mbarrier, Signal
from mirage_py.ugraph.ir.plan import Plan

HOPPER = {"arch": "sm_90a", "producer": "warps"}
KEYS, VALUES = "K", "V"


def attention(stages: int, warps: int = 4, **flags: str) -> Plan:
    plan = attention_plan(1, 16 * warps, 512, 64, (16 * warps, 64))
    return for_cuda(plan, warps, stages, **HOPPER | flags)


def tensor(plan: KernelPlan, load: int) -> str:
    return plan.facts.block.nodes[load].access.tensor


def test_a_plan_is_frozen() -> None:
    plan = planned(attention(2))
    with pytest.raises(FrozenInstanceError):
        plan.depths = {}  # type: ignore[misc]


def test_mbarriers_of_a_producer() -> None:
    plan = planned(attention(3, 8))
    (loop,) = plan.pipeline.loops
    assert [tensor(plan, n) for n in plan.pipeline.loops[loop]] == [KEYS, VALUES]
    full, empty = Mbarrier(Signal.FULL, loop, 3, 1), Mbarrier(Signal.EMPTY, loop, 3, 8)
    assert plan.mbarriers == (full, empty)
    without = planned(attention(3, 8, producer="", copies="descriptors"))
    assert without.mbarriers == (full,)
    assert planned(attention(3, 8, arch="sm_80")).mbarriers == ()


@pytest.mark.parametrize("mode", ["on", "across"])
def test_overlap(mode: str) -> None:
    plan = planned(attention(2, overlap=mode))
    scores, weighted = plan.layouts.mmas
    (overlap,) = plan.overlap.values()
    assert (overlap.early, overlap.late) == (scores, (plan.facts.fused[weighted],))
    # Across iterations registers are short: queries are read from shared memory.
    assert (plan.operands.lefts[scores] is None) == (mode == "on")
    assert [o.under_way for o in planned(attention(2)).overlap.values()] == [()]
    assert [o.under_way for o in planned(attention(1, overlap=mode)).overlap.values()] == [()]


def test_phases_hold_each_node_once_and_barriers_only_where_threads_exchange() -> None:
    plan = planned(for_cuda(rms_plan(40, 128, 64), 4, 2))
    nodes = [n for section in plan.phases for phase in section for n in phase]
    stores = [n for n, _ in plan.facts.block.stores()]
    assert sorted(nodes) == sorted([*plan.facts.emitted, *stores])
    written = planned(for_cuda(rms_plan(40, 128, 64), 4, 2, schedule="off"))
    assert [len(section) for section in written.phases] == [1] * len(written.phases)


@pytest.mark.parametrize(("stages", "emissions"), [(2, 1), (8, 1)])
def test_stages_that_do_not_fit_are_not_written(
    stages: int, emissions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage of 128 keys and values of 256 halves takes 128 KiB: there is room for one."""
    count = 0

    class Counted(KernelEmitter):
        def emit(self) -> None:
            nonlocal count
            count += 1
            super().emit()

    monkeypatch.setattr(module, "KernelEmitter", Counted)
    plan = attention_plan(1, 64, 2048, 256, (64, 128))
    kernel = kernel_of(for_cuda(plan, 4, stages, **HOPPER))
    assert count == emissions
    assert kernel.smem_bytes <= 227 * 1024


def test_stages_are_those_that_fit() -> None:
    """A stage of 128 keys and values of 128 halves takes 64 KiB; 227 KiB hold three."""
    plan = attention_plan(1, 64, 2048, 128, (64, 128))
    found = planned(for_cuda(plan, 4, 8, **HOPPER))
    (depth,) = found.depths.values()
    assert (depth, found.ring_bytes) == (3, 3 * 64 * 1024)
    (options,) = for_cuda(plan, 4, 8, **HOPPER).options
    assert found.options == replace(options, num_stages=(3,))
