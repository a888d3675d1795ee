"""Calls of a kernel like earlier ones: no question is asked twice, and none is left out."""

from __future__ import annotations

import warnings

import pytest
import torch
from plans import two_kernel_plan
from torch.autograd import forward_ad

from mirage_py.errors import InputError
from mirage_py.runtime.launch.cached_calls import ByShapes, CachedCalls
from mirage_py.runtime.launch.input_check import ExpectedInput, check_detached, check_tensors
from mirage_py.runtime.launch.repeated_launch import repeated
from mirage_py.runtime.sized.sized_launch import SizedRunner
from mirage_py.ugraph.checks.run_time_sizes import with_run_time_sizes
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.program import Tensor

CPU = torch.device("cpu")


class Doubling(CachedCalls):
    """Y = X + X of 4 by 6 numbers; counts the calls that are looked at."""

    def __init__(self) -> None:
        super().__init__(1)
        self.looked_at = []
        self.launched = 0

    def _launch(self, memory, stream):
        self.launched += 1
        torch.add(memory[0], memory[0], out=memory[1])

    def _first_call(self, inputs):
        self.looked_at.append(inputs)
        (x,) = inputs
        out = Tensor("Y", tuple(x.shape), F32)
        call = repeated([self._launch], [out], 1, CPU, self._checked_call)
        if x.data_ptr() % 16 == 0:
            self._remember(inputs, call)
        return x + x

    def _checked_call(self, inputs):
        self.looked_at.append("checked")
        return inputs[0] * 2


def test_where_there_may_be_tangents_every_call_is_looked_at():
    f, x = Doubling(), torch.randn(4, 6)
    f(x)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones(4, 6))
        assert torch.equal(forward_ad.unpack_dual(f(dual)).tangent, torch.full((4, 6), 2.0))
        expected = (ExpectedInput(Tensor("X", (4, 6), F32)),)
        check_detached((x,), expected)
        with torch.no_grad(), pytest.raises(InputError, match="tangent"):
            check_detached((dual,), expected)
    assert f.launched == 0


def test_a_call_is_looked_at_once():
    f = Doubling()
    for _ in range(3):
        x = torch.randn(4, 6)
        assert torch.equal(f(x), x + x)
    assert (len(f.looked_at), f.launched) == (1, 2)
    f(torch.randn(5, 6))
    assert len(f.looked_at) == 2
    f(torch.randn(4, 6))
    f(torch.randn(5, 6))
    assert (len(f.looked_at), f.launched) == (2, 4)


@pytest.mark.filterwarnings("ignore")
def test_guards_are_not_asked_of_nested_tensors():
    """torch ends the process."""
    f = Doubling()
    f(torch.randn(4, 6))
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert [t.tolist() for t in f(nested).unbind()] == [[2.0] * 2, [2.0] * 3]
    with pytest.raises(InputError, match="nested"):
        check_tensors((nested,), ("X",))


def test_an_address_is_asked_at_every_call():
    f = Doubling()
    f(torch.randn(4, 6))
    odd = torch.randn(25)[1:].view(4, 6)
    assert torch.equal(f(odd), odd * 2)
    assert f.looked_at[1:] == ["checked"]
    f(torch.randn(4, 6))
    assert f.launched == 1


def test_what_is_no_tensor_is_looked_at():
    f = Doubling()
    f(torch.randn(4, 6))
    for inputs in (([1.0],), (None,), (), (torch.randn(4, 6),) * 2):
        assert f.again(inputs) is None
    with pytest.raises(AttributeError):
        f([1.0])
    with pytest.raises(ValueError, match="unpack"):
        f()


def test_things_of_one_shape_are_kept_a_few():
    kept = ByShapes()
    x = [torch.zeros(2, 3)]
    for n in range(6):
        kept.add(x, n)
    assert kept.at([torch.ones(2, 3)]) == (5, 4, 3, 2)
    assert kept.at([torch.zeros(3, 2)]) == ()


def test_several_steps_with_memory_between_them():
    seen = []

    def step(memory, stream):
        seen.append((len(memory), [tuple(t.shape) for t in memory]))

    made = [Tensor(n, (k, 2), F32) for n, k in (("A", 3), ("B", 4), ("S", 5))]
    call = repeated([step, step], made, 2, CPU, lambda _: None)
    a, b = call([torch.zeros(1)])
    assert (a.shape, b.shape) == ((3, 2), (4, 2))
    assert seen == [(4, [(1,), (3, 2), (4, 2), (5, 2)])] * 2


def test_a_kernel_of_many_sizes_asks_on():
    launched = []
    plan = with_run_time_sizes(two_kernel_plan(), ("b", "d"))
    f = SizedRunner(plan, lambda *_: lambda grid, stream, arguments: launched.append(arguments))
    for _ in range(3):
        for rows in (20, 21):
            x = torch.zeros(rows, 64).half()
            assert f(x).shape == (rows, 64)
            assert launched[-1][0] in (x.data_ptr(), launched[-1][0])
    assert len(launched) == 12
    with pytest.raises(InputError, match=r"has type torch\.float32"):
        f(torch.zeros(20, 64))
    with pytest.raises(InputError, match="requires a gradient"):
        f(torch.zeros(20, 64).half().requires_grad_())
    # Another step between rows: the launch is told.
    f(torch.zeros(20, 128).half()[:, :64])
    assert 128 in launched[-2]
    f(torch.zeros(20, 64).half())
    assert 128 not in launched[-2]


def test_inside_torch_compile_there_is_no_guard():
    f, x = Doubling(), torch.randn(4, 6)
    f(x)
    compiled = torch.compile(lambda x: f(x) + 1, backend="eager", fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            assert torch.equal(compiled(x), x * 2 + 1)
    assert f.looked_at[1:] == ["checked"] * 2
