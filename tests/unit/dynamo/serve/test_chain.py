"""Plans of regions as links of a chain."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import several_kernels
import torch
from torch._inductor import config

from mirage_py.codegen.tiling.dependent_launch import launch_orders
from mirage_py.dynamo.serve.chain import Chain, link_of
from mirage_py.dynamo.serve.options import BackendOptions
from mirage_py.ugraph.ir.launch_choices import NextStart

PLAN = several_kernels.plan("residual_gated")
ON = BackendOptions(chain="on")


def on_gpu(monkeypatch: pytest.MonkeyPatch, *capability: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    h200 = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: h200)


def test_on_hopper_a_plan_may_be_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    assert link_of(PLAN, (), ON) is None  # there is no GPU
    on_gpu(monkeypatch, 8, 0)
    assert link_of(PLAN, (), ON) is None
    on_gpu(monkeypatch, 9, 0)
    assert link_of(PLAN, (), BackendOptions()) is None  # none is asked for
    found = link_of(PLAN, ("W", "U"), ON)
    assert found is not None
    assert all(o.uses_pdl and o.is_chained and o.triggers_next for o in launch_orders(found))
    assert [o.constants for o in found.options] == [("U", "W")] * len(found.options)
    assert found.ugraph is PLAN.ugraph


def test_blocks_that_all_run_at_once_let_the_next_kernel_start_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_gpu(monkeypatch, 9, 0)
    few = link_of(PLAN, (), ON)
    assert few is not None
    assert {o.next_start for o in few.options} == {NextStart.WAITED}
    sizes = {d.name: replace(d, size=1 << 20) for d in PLAN.ugraph.program.dims}
    program = replace(PLAN.ugraph.program, dims=tuple(sizes.values()))
    many = link_of(replace(PLAN, ugraph=replace(PLAN.ugraph, program=program)), (), ON)
    assert many is not None
    assert {o.next_start for o in many.options} == {NextStart.STORES}


@pytest.mark.skipif(not hasattr(config.triton, "enable_pdl"), reason="Inductor has none")
def test_not_beside_kernels_of_inductor_that_start_early(monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpu(monkeypatch, 9, 0)
    early = BackendOptions(chain="race", inductor={"triton.enable_pdl": True})
    assert link_of(PLAN, (), early) is None
    with config.patch({"triton.enable_pdl": True}):
        assert link_of(PLAN, (), ON) is None
        late = BackendOptions(chain="race", inductor={"triton.enable_pdl": False})
        assert link_of(PLAN, (), late) is not None


def test_a_chain_is_on_while_its_graph_runs() -> None:
    chain = Chain()
    seen: list[bool] = []

    def graph(fails: bool) -> None:
        seen.append(chain.is_on)
        if fails:
            raise ValueError

    run = chain.running(graph)
    run(False)
    graph(False)
    with pytest.raises(ValueError):  # noqa: PT011
        run(True)
    assert seen == [True, False, True]
    assert not chain.is_on
