"""Launches of kernels whose sizes are arguments: what can be known without a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from plans import attention_plan, rms_plan, two_kernel_plan

from mirage_py.errors import InputError
from mirage_py.runtime.compile.compile import KernelSource, compile_source
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.runtime.sized.sized_check import check_sizes, checked_sizes
from mirage_py.runtime.sized.sized_launch import SizedRunner
from mirage_py.runtime.store.artifact import load_artifact
from mirage_py.runtime.store.saved import save_artifact
from mirage_py.ugraph.checks.run_time_sizes import with_run_time_sizes


class Launches:
    """Stands in for a GPU: keeps what would be compiled and launched."""

    def __init__(self):
        self.compiled = []
        self.launched = []

    def __call__(self, kernel, aligned, index):
        self.compiled.append((kernel.name, aligned))
        return lambda grid, stream, arguments: self.launched.append((grid, arguments))


@pytest.fixture
def launches():
    return Launches()


def attention_inputs(q: int, s: int):
    return tuple(torch.zeros(shape).half() for shape in ((2, q, 16), (2, 16, s), (2, s, 16)))


def attention(launches: Launches) -> SizedRunner:
    return SizedRunner(with_run_time_sizes(attention_plan(), ("q", "s")), launches)


def test_arguments_follow_the_sizes(launches):
    runner = attention(launches)
    inputs = attention_inputs(33, 50)
    out = runner(*inputs)
    assert out.shape == (2, 33, 16)
    ((grid, arguments),) = launches.launched
    assert grid == 2 * 3
    # q, s; steps of Q, K (twice), V, O
    assert arguments[4:] == [33, 50, 33 * 16, 50 * 16, 50, 50 * 16, 33 * 16]
    assert arguments[:4] == [x.data_ptr() for x in (*inputs, out)]


def test_compiled_again_for_multiples_of_16_only(launches):
    runner = attention(launches)
    for s in (50, 51, 52, 53):
        runner(*attention_inputs(33, s))
    assert runner.compiled == 1
    for s in (64, 96, 128):
        runner(*attention_inputs(33, s))
    assert runner.compiled == 2
    # Steps over rows of 16 numbers are multiples in both; sizes and K's rows in one.
    (_, some), (_, all_of_s) = launches.compiled
    assert set(some) < set(all_of_s)


def test_strides_may_be_what_they_are(launches):
    plan = with_run_time_sizes(two_kernel_plan(), ("b", "d"))
    runner = SizedRunner(plan, launches)
    wide = torch.zeros(20, 64).half()
    runner(wide[:, :48])
    assert launches.launched[0][1][-1] == 64  # the step of X, as it is
    # Along the last axis the step is written in: another layout is copied.
    runner(torch.zeros(48, 20).half().T)
    assert launches.launched[2][1][-1] == 48


def test_descriptors_of_this_call(launches):
    plan = attention_plan()
    options = (plan.options[0].with_flag("copies", "descriptors"),)
    plan = with_run_time_sizes(replace(plan, options=options), ("q", "s"))
    runner = SizedRunner(plan, launches)
    q, k, v = attention_inputs(4, 50)
    runner(q, k, v)
    described = launches.launched[0][1][2]
    assert (described.shape, described.strides) == ([2, 50, 16], [800, 16, 1])
    assert described.block_shape == [1, 32, 16]
    # Steps that the engine does not take: the tensor is copied into ones that it does.
    odd = torch.zeros(2, 50 * 16 + 4).half()[:, : 50 * 16].unflatten(1, (50, 16))
    runner(q, k, odd)
    assert launches.launched[1][1][2].strides == [800, 16, 1]


def test_what_does_not_fit(launches):
    runner = attention(launches)
    q, k, v = attention_inputs(4, 5)
    with pytest.raises(InputError, match=r"'V' has shape \[2, 6, 16\]"):
        runner(q, k, attention_inputs(4, 6)[2])
    with pytest.raises(InputError, match="2 tensors for 3 inputs"):
        runner(q, k)
    with pytest.raises(InputError, match="'K' is a list, not a tensor"):
        runner(q, [k], v)
    with pytest.raises(InputError, match="takes 3 axes"):
        runner(q[0], k, v)
    with pytest.raises(InputError, match=r"has type torch\.float32"):
        runner(q.float(), k, v)


def test_tensors_elsewhere_are_refused_at_every_call(launches):
    """Also of shapes that are known: the kernel would read addresses of another memory."""
    runner = attention(launches)
    inputs = attention_inputs(4, 5)
    runner(*inputs)
    runner._is_emulated = False
    with pytest.raises(InputError, match="the inputs are on cpu"):
        runner._first_call(inputs)


def test_sizes_that_no_tile_holds(launches):
    """A row that is whole in a tile of 128 points."""
    plan = with_run_time_sizes(rms_plan(d=96, tiles=(16, 32, 64)), ("b", "n"))
    runner = SizedRunner(plan, launches)
    assert "b" in str(runner.validity)
    runner.calls.validity = type(runner.validity).ranges({"b": (1, 8)})
    with pytest.raises(InputError, match="the kernel is right for 1 <= b <= 8"):
        runner(*(torch.zeros(s).half() for s in ((9, 96), (96,), (96, 50))))


def test_compiles_for_each_target():
    plan = with_run_time_sizes(attention_plan(), ("q", "s"))
    (kernel,) = SizedRunner(plan).steps
    for aligned in ((), (4, 5, 6, 7, 8, 9, 10)):
        assert compile_source(KernelSource.of(kernel, aligned), 90).registers > 0


def test_an_artifact_keeps_its_run_time_sizes(tmp_path):
    plan = with_run_time_sizes(attention_plan(), ("q", "s"))
    save_artifact(tmp_path / "out", program=plan.ugraph.program, plan=plan, report={})
    found = load_artifact(tmp_path / "out")
    assert found.plan == plan
    assert isinstance(found.runner(), SizedRunner)


def test_the_check_sees_a_kernel_that_is_right_at_one_size_alone():
    plan = with_run_time_sizes(attention_plan(q=8, s=40), ("q", "s"))
    assert checked_sizes(plan)[0] == {"q": 2, "s": 2}
    sizes = [{"q": 5, "s": 37}, {"q": 9, "s": 41}]
    assert check_sizes(plan, run_interpreted, seed=1, sizes=sizes).passed

    def blind(plan, arrays, sizes):
        """Reads the keys that it was tuned for, whatever there are."""
        found = run_interpreted(plan, arrays, sizes)
        return {n: x * (1 if sizes["s"] == 40 else 0.5) for n, x in found.items()}

    found = check_sizes(plan, blind, seed=1, sizes=sizes)
    assert not found.passed
    assert "at q = 5, s = 37" in found.reason.where
