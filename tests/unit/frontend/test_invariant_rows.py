"""One kernel for any number of rows, through a decorated function, without a GPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from naive_plans import one_block_plan

from mirage_py.errors import InputError, UnsupportedError
from mirage_py.frontend.decorator import CallOptions, SuperoptimizedFunction
from mirage_py.runtime.sized.sized_launch import SizedRunner
from mirage_py.ugraph.checks.row_invariance import with_invariant_rows


class Rows:
    """Makes kernels of any number of rows, for a GPU that is not there, and counts them."""

    def __init__(self):
        self.programs = []
        self.compiled = []

    def __call__(self, program, dims, fallback):
        self.programs.append(program)
        plan = with_invariant_rows(one_block_plan(program), dims)
        runner = SizedRunner(plan, self._load)

        def kernel(*tensors):
            runner(*tensors)
            return fallback(*tensors)

        kernel.validity, kernel.plan = runner.validity, plan
        return kernel

    def _load(self, kernel, aligned, index):
        self.compiled.append(aligned)
        return lambda *_: None

    def serve(self, fn, **options):
        def exactly(*_):
            pytest.fail("a kernel of one size alone")

        options = CallOptions(invariant=True, **options)
        return SuperoptimizedFunction(fn, options, exactly, self)


def linear(x, w):
    return F.relu(x @ w)


def test_one_kernel_serves_one_row_and_many():
    made = Rows()
    fn = made.serve(linear)
    w = torch.randn(16, 8)
    for n in (5, 1, 2, 16, 48, 2048):
        x = torch.randn(n, 16)
        torch.testing.assert_close(fn(x, w), linear(x, w))
    (program,) = made.programs
    assert program.inputs[0].shape == (16, 16)  # whatever came first
    assert made.compiled == [()]  # and no machine code of its own for multiples of 16
    assert "1 <= rows <=" in fn.dispatch_table()


def test_rows_that_are_named_and_what_they_are_tuned_for():
    made = Rows()
    both = made.serve(lambda x, y: x * y + y, dynamic={"x": (0,), "y": {0: "x_0"}}, edges=(64,))
    both(torch.randn(3, 8), torch.randn(3, 8))
    assert made.programs[0].inputs[0].shape == (64, 8)


def test_another_program_at_one_row_is_refused():
    fn = Rows().serve(lambda x, w: (x if x.shape[0] == 1 else x + x) @ w)
    with pytest.raises(UnsupportedError, match="another program at rows = 1"):
        fn(torch.randn(4, 16), torch.randn(16, 8))


def test_no_promise_is_broken_in_silence():
    made = Rows()
    fn = made.serve(lambda x, y: x + y)  # the second has rows too, and nobody said so
    with pytest.raises(UnsupportedError, match="cannot be traced"):
        fn(torch.randn(4, 8), torch.randn(4, 8))
    named = made.serve(lambda x, y: x.sum() + y.sum(), dynamic={"x": {0: "b"}, "y": {0: "b"}})
    with pytest.raises(UnsupportedError, match="not of one number"):
        named(torch.randn(4, 8), torch.randn(5, 8))


def test_options_that_contradict_it():
    with pytest.raises(InputError, match="has several kernels"):
        CallOptions(invariant=True, shapes="bucketed")
    assert CallOptions(invariant=True, shapes="symbolic").policy.invariant
