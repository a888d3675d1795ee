"""Calls of many sizes through one decorated function, without a GPU."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from naive_plans import one_block_plan

from mirage_py.errors import InputError, MirageWarning
from mirage_py.frontend.decorator import CallOptions, SuperoptimizedFunction
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.runtime.sized.sized_launch import SizedRunner
from mirage_py.ugraph.checks.run_time_sizes import with_run_time_sizes


class SizedKernel:
    """One kernel for many sizes. Its runner works out launches, for a GPU that is not there; the
    values are those of Triton's interpreter at the sizes ``interpreted``, else of the function.
    """

    def __init__(self, program, dims, interpreted, fallback):
        self.program = program
        self.fallback = fallback
        self.plan = with_run_time_sizes(one_block_plan(program), dims)
        self.launches = []
        self.runner = SizedRunner(self.plan, self._load)
        self.validity = self.runner.validity
        self.description = self.runner.description
        self.interpreted = interpreted

    def _load(self, kernel, aligned, index):
        return lambda grid, stream, arguments: self.launches.append((grid, arguments))

    def warmup(self, *tensors):
        self.runner.warmup(*tensors)

    def __call__(self, *tensors):
        self.runner(*tensors)
        sizes = self.runner.calls.sizes([x.shape for x in tensors])
        if not set(sizes.values()) & set(self.interpreted):
            return self.fallback(*tensors)
        names = [t.name for t in self.program.inputs]
        arrays = {n: x.double().numpy() for n, x in zip(names, tensors, strict=True)}
        results = run_interpreted(self.plan, arrays, sizes)
        outputs = [torch.from_numpy(results[o.tensor.name].copy()) for o in self.program.outputs]
        return tuple(outputs) if len(outputs) > 1 else outputs[0].to(tensors[0].dtype)


class Sizes:
    """Makes such kernels, and counts them."""

    def __init__(self, *interpreted):
        self.kernels = []
        self.interpreted = interpreted
        self.static = []

    def __call__(self, program, dims, fallback):
        self.kernels.append(SizedKernel(program, dims, self.interpreted, fallback))
        return self.kernels[-1]

    def serve(self, fn, **options):
        def exactly(program, inputs, fallback):
            self.static.append(program)
            return fallback

        return SuperoptimizedFunction(fn, CallOptions(**options), exactly, self)


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def rows(n, width=8):
    torch.manual_seed(n)
    return torch.randn(1, 2, n, width)


TOKENS = {2: "tokens"}
IN_ALL = {"q": TOKENS, "k": TOKENS, "v": TOKENS}


def test_303_lengths_of_one_attention():
    sizes = Sizes(2, 33, 64, 65, 100)
    fn = sizes.serve(attention, shapes="bucketed", dynamic=IN_ALL, edges=(64, 304))
    with warnings.catch_warnings():
        warnings.simplefilter("error", MirageWarning)
        for n in range(2, 305):
            q, k, v = rows(n), rows(n), rows(n)
            got = fn(q, k, v)
            if n % 50 == 4 or n in (2, 33, 64, 65, 304):
                torch.testing.assert_close(got, attention(q, k, v), atol=2e-3, rtol=2e-3)
    assert len(sizes.kernels) == 2  # one for each bucket
    assert sizes.static == []
    assert [len(k.launches) for k in sizes.kernels] == [63, 240]
    # Again for sizes that are multiples of 16, and, with 8 numbers a row, for strides that are.
    assert all(k.runner.compiled <= 3 for k in sizes.kernels)
    table = fn.dispatch_table()
    assert "q: f32[1, 2, tokens, 8]" in table
    assert "2 <= tokens <= 64" in table
    assert "65 <= tokens <= 304" in table
    assert [line.split()[-1] for line in table.splitlines()[-2:]] == ["63", "240"]


def test_one_kernel_for_all_sizes():
    sizes = Sizes()
    fn = sizes.serve(lambda x, w: F.relu(x @ w), shapes="symbolic", dynamic={"x": {0: "m"}})
    w = torch.randn(8, 4)
    for m in (5, 2, 40, 1000):
        x = torch.randn(m, 8)
        torch.testing.assert_close(fn(x, w), F.relu(x @ w))
    assert len(sizes.kernels) == 1
    # One point is no dimension, and has a program of its own.
    fn(torch.randn(1, 8), w)
    assert len(sizes.static) == 1
    assert "m == 1" in fn.dispatch_table()


def test_marks_of_torch_are_respected():
    sizes = Sizes()
    fn = sizes.serve(lambda x, w: x @ w)
    w = torch.randn(8, 4)
    for m in (17, 30, 32):
        x = torch.randn(m, 8)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(fn(x, w), x @ w)
    assert len(sizes.kernels) == 1
    assert "17 <= x_0 <= 32" in fn.dispatch_table()
    fn(torch.randn(17, 8), w)  # not marked: a kernel for this size
    assert len(sizes.static) == 1


def test_mark_static_takes_an_axis_out():
    sizes = Sizes()
    fn = sizes.serve(lambda x, w: x @ w, shapes="bucketed", dynamic={"x": (0,)})
    x = torch.randn(17, 8)
    torch._dynamo.mark_static(x, 0)
    fn(x, torch.randn(8, 4))
    assert (len(sizes.kernels), len(sizes.static)) == (0, 1)


def test_static_is_static_whatever_is_marked():
    sizes = Sizes()
    fn = sizes.serve(lambda x: x * 2, shapes="static", dynamic={"x": (0,)})
    for m in (4, 5):
        fn(torch.randn(m, 8))
    assert (len(sizes.kernels), len(sizes.static)) == (0, 2)


def test_a_size_that_is_in_the_program_is_refused_once():
    sizes = Sizes()
    fn = sizes.serve(lambda x, w: (x @ w) * x.shape[0] ** 0.5, shapes="bucketed",
                     dynamic={"x": {0: "m"}})  # fmt: skip
    w = torch.randn(8, 4)

    def call(m):
        x = torch.randn(m, 8)
        torch.testing.assert_close(fn(x, w), (x @ w) * m**0.5)

    with pytest.warns(MirageWarning, match="another program at m = "):
        call(17)
    with warnings.catch_warnings():
        warnings.simplefilter("error", MirageWarning)
        call(18)
        call(60)
    assert sizes.kernels == []
    assert "fallback" in fn.dispatch_table()


def test_a_name_with_two_sizes_is_served_as_it_is():
    sizes = Sizes()
    both = {"x": {0: "m"}, "y": {0: "m"}}
    fn = sizes.serve(lambda x, y: (x * 2, y * 3), shapes="bucketed", dynamic=both)
    fn(torch.randn(4, 8), torch.randn(5, 8))
    assert (len(sizes.kernels), len(sizes.static)) == (0, 1)


def test_strides_are_read_at_each_call():
    sizes = Sizes(20)
    fn = sizes.serve(lambda x, w: x @ w, shapes="bucketed", dynamic={"x": {1: "m"}})
    w = torch.randn(8, 4)
    for m in (20, 21):
        x = torch.randn(3, 50, 8)[:, :m]  # rows of a longer buffer
        torch.testing.assert_close(fn(x, w), x @ w, atol=1e-4, rtol=1e-4)
    (kernel,) = sizes.kernels
    (_, arguments), _ = kernel.launches
    assert 400 in arguments  # the step from one batch to the next


def test_no_such_axis():
    fn = Sizes().serve(lambda x: x * 2, shapes="bucketed", dynamic={"x": (5,)})
    with pytest.raises(InputError, match="'x' has no axis 5"):
        fn(torch.randn(4, 8))


def test_a_kernel_that_fails_is_not_called_again():
    sizes = Sizes()
    fn = sizes.serve(lambda x, w: x @ w, shapes="bucketed", dynamic={"x": (0,)})
    x, w = torch.randn(20, 8), torch.randn(8, 4)
    fn(x, w)
    (kernel,) = sizes.kernels
    kernel.runner = None
    with pytest.warns(MirageWarning, match="not callable"):
        torch.testing.assert_close(fn(x, w), x @ w)
    torch.testing.assert_close(fn(x[:18], w), x[:18] @ w)
    assert "fallback" in fn.dispatch_table()


def test_a_captured_tensor_that_changes_gets_a_row_of_its_own():
    sizes = Sizes()
    held = {"w": torch.randn(8, 4)}
    fn = sizes.serve(lambda x: x @ held["w"], shapes="bucketed", dynamic={"x": (0,)})
    fn(torch.randn(20, 8))
    held["w"] = torch.randn(8, 5)
    for m in (20, 21, 22):
        x = torch.randn(m, 8)
        torch.testing.assert_close(fn(x), x @ held["w"])
    assert len(sizes.kernels) == 2
    assert fn.dispatch_table().count("<= x_0 <=") == 1


def test_an_option_that_does_not_exist_is_the_callers_mistake():
    fn = SuperoptimizedFunction(
        lambda x: x * 2, CallOptions(effort="huge", dynamic={"x": (0,)}), lambda *_: None
    )
    with pytest.raises(InputError, match="unknown effort"):
        fn(torch.randn(4, 8))
    with pytest.raises(InputError, match="unknown shape policy"):
        SuperoptimizedFunction(lambda x: x, CallOptions(shapes="elastic"))


def test_a_name_that_is_no_parameter_is_the_callers_mistake():
    with pytest.raises(InputError, match="names 'q', which is no parameter"):
        SuperoptimizedFunction(lambda x: x * 2, CallOptions(dynamic={"q": (0,)}))


def test_prepared_kernels_are_compiled():
    sizes = Sizes()
    fn = sizes.serve(lambda x, w: x @ w, shapes="bucketed", dynamic={"x": (0,)})
    w = torch.randn(8, 4)
    fn.prepare(torch.randn(20, 8), w)
    (kernel,) = sizes.kernels
    assert (kernel.runner.compiled, kernel.launches) == (1, [])
    fn.prepare(torch.randn(32, 8), w)
    assert (kernel.runner.compiled, kernel.launches) == (2, [])
