"""Cached kernels of a decorated function: explained, saved, served again without a search."""

from __future__ import annotations

import re

import pytest
import torch
from naive_plans import one_block_plan

import mirage_py
from mirage_py.errors import FormatError, InputError
from mirage_py.frontend.decorator import CallOptions, SuperoptimizedFunction
from mirage_py.runtime.store.artifact import load_artifact

X, W = torch.randn(20, 8), torch.randn(8, 4)
REPORT = {
    "best": {"time_us": 3.0, "source": "measured"},
    "baseline": {"name": "eager", "time_us": 9.5},
    "verification": {"proved": True, "trials": 4, "max_rel_error": 1e-4, "float_bound": 1e-2},
    "search": {"candidates": 12, "exhausted": True},
}


def layer(x, w):
    return torch.relu(x @ w)


class Kernel:
    """What an optimizer gives: a function with a plan and a report."""

    description = "grid m by 16"

    def __init__(self, program, fallback):
        self.plan = one_block_plan(program)
        self.record = REPORT
        self.fallback = fallback

    def __call__(self, *tensors):
        return self.fallback(*tensors)


class Searches:
    """An optimizer that counts."""

    def __init__(self):
        self.count = 0

    def __call__(self, program, inputs, fallback):
        self.count += 1
        return Kernel(program, fallback)


def served(search, **options):
    return SuperoptimizedFunction(layer, CallOptions(**options), search)


def test_explain_ends_with_a_line_that_gives_the_same_plan():
    text = served(Searches()).explain(X, W)
    for part in (
        "layer(x: f32[20, 8] on cpu, w: f32[8, 4] on cpu)",
        "served by: mirage_py: grid m by 16 (searched)",
        "time: 3.0 us (measured), eager 9.5 us",
        "proved, and equal in 4 trials",
        "12 candidates, all of the space",
        "kernel rows {",
    ):
        assert part in text
    (line,) = re.findall(r'^@mirage_py\.superoptimize\(plan="(.*)"\)$', text, re.MULTILINE)
    search = Searches()
    again = served(search, plan=line)
    entry = again.entry(X, W)
    assert search.count == 0
    assert entry.source == "loaded"
    assert entry.kernel.plan == one_block_plan(mirage_py.trace(layer, X, W))


def test_a_plan_serves_its_own_program_alone():
    line = served(Searches()).explain(X, W).rsplit('plan="', 1)[1].removesuffix('")')
    search = Searches()
    again = served(search, plan=line)
    again(torch.randn(21, 8), W)
    assert search.count == 1


def test_save_and_load(tmp_path):
    folder = tmp_path / "kernel"
    served(Searches()).save(folder, X, W)
    assert load_artifact(folder).report == REPORT
    search = Searches()
    again = served(search)
    again.load(folder)
    assert again.entry(X, W).source == "loaded"
    assert search.count == 0
    assert mirage_py.load(folder).plan == mirage_py.kernel_from(folder).plan


def test_nothing_to_save(tmp_path):
    fn = SuperoptimizedFunction(lambda x: x.median(-1).values, CallOptions(), Searches())
    with pytest.raises(InputError, match="has no kernel"):
        fn.save(tmp_path / "kernel", X)


def test_what_is_no_plan():
    with pytest.raises(FormatError):
        served(Searches(), strict=True).load("mirage-plan-1:00:00")


def test_as_torch_op():
    op = served(Searches()).as_torch_op("mirage_py_tests::kept_layer", X, W)
    torch.testing.assert_close(op(X, W), layer(X, W))
    assert torch.ops.mirage_py_tests.kept_layer is op
