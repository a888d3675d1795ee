"""Cached measurements equal those computed anew."""

from __future__ import annotations

import pytest
import several_kernels

from mirage_py.search.model.cost_model import KernelModel
from mirage_py.search.model.launches import launch_options
from mirage_py.search.rank.forms import form_of
from mirage_py.search.rank.kernel_models import KernelModels
from mirage_py.search.tilings import tilings
from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.targets import H200
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.ugraph import BlockGraph


def test_predictions_are_those_of_a_kernel_that_is_measured_out_alone() -> None:
    form = form_of(several_kernels.ugraph("split_attention"), H200, {})
    models = KernelModels(H200)
    for number, kernel in enumerate(form.ugraph.kernels):
        assert isinstance(kernel, BlockGraph)
        for model in models.promising(form, number, "cuda")[:8]:
            for backend in ("cuda", "triton"):
                for options in launch_options(model.kernel, backend, H200):
                    fresh = TiledKernel(model.kernel.tiling)
                    alone = KernelModel(fresh, H200, form.in_cache[number])
                    assert model.estimate(options) == alone.estimate(options)


def test_both_back_ends_have_the_same_tilings_measured_out() -> None:
    form = form_of(several_kernels.ugraph("split_attention"), H200, {})
    models = KernelModels(H200)
    found = models.promising(form, 0, "cuda")
    assert models.promising(form, 0, "triton") is found


def test_a_quick_look_before_changes_nothing() -> None:
    form = form_of(several_kernels.ugraph("residual_gated"), H200, {})
    before, alone = KernelModels(H200), KernelModels(H200)
    for number in range(len(form.ugraph.kernels)):
        before.probed_us(form, number, "cuda")
        looked, not_looked = (m.promising(form, number, "cuda") for m in (before, alone))
        assert [m.kernel.block for m in looked] == [m.kernel.block for m in not_looked]


def test_what_is_too_large_is_refused_with_its_tiling_too(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = several_kernels.ugraph("split_attention")

    def found() -> list[BlockGraph]:
        blocks = [k for k in graph.kernels if isinstance(k, BlockGraph)]
        return [t.block for block in blocks for t in tilings.tilings(graph.scope, block, ())]

    quickly = found()
    monkeypatch.setattr(tilings, "_is_too_large", lambda *_: False)
    assert quickly
    assert found() == quickly


def test_another_number_of_splits_has_the_best_tilings_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    family, models = several_kernels.ugraph("split_attention"), KernelModels(H200, 8)
    one, other = (models.form(family, splits) for splits in models.splits(family)[:2])
    measured: list[BlockGraph] = []
    real = KernelModels._model

    def model(self, tiled, form, number):
        measured.append(tiled.block)
        return real(self, tiled, form, number)

    monkeypatch.setattr(KernelModels, "_model", model)
    first = models.promising(one, 0, "cuda")
    of_first = len(measured)
    second = models.promising(other, 0, "cuda")
    assert 0 < len(measured) - of_first <= len(first) < of_first
    options = LaunchConfig(4, (3,))
    alone = KernelModels(H200, 8).promising(other, 0, "cuda")
    best_us = min(model.estimate(options).time_us for model in alone)
    assert min(model.estimate(options).time_us for model in second) < 1.05 * best_us
