"""Calls like earlier ones go past the tables of a decorated function, and no others do."""

from __future__ import annotations

import threading
import warnings

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from mirage_py.errors import MirageWarning
from mirage_py.frontend import refused_calls
from mirage_py.frontend.decorator import CallOptions, SuperoptimizedFunction
from mirage_py.frontend.repeated_calls import ANOTHER
from mirage_py.frontend.torch.guards.origins import Origin
from mirage_py.frontend.torch.trace import TracedCall
from mirage_py.reasons import Code, reason
from mirage_py.runtime.store.artifact import OriginalProgram

X = torch.randn(4, 6)
W = torch.randn(6, 3)


class Counted(SuperoptimizedFunction):
    """Counts the calls for which the tables are asked; its kernels are the function itself, and
    say so by their number of calls.
    """

    def __init__(self, fn, **options):
        self.programs, self.kernel_calls, self.asked = [], [], 0
        super().__init__(fn, CallOptions(**options), self._exactly, self._for_sizes)
        find = self._tables.find

        def counted(call):
            self.asked += 1
            return find(call)

        self._tables.find = counted

    def _exactly(self, program, inputs, reference):
        self.programs.append(program)
        number = len(self.programs)

        def kernel(*tensors):
            self.kernel_calls.append(number)
            return reference(*tensors)

        return kernel

    def _for_sizes(self, program, dims, reference):
        return self._exactly(program, (), reference)


def layer(x, w, scale=2.0):
    return torch.relu(x @ w) * scale


def test_the_second_call_asks_nothing():
    fn = Counted(layer)
    for _ in range(3):
        torch.testing.assert_close(fn(X, W), layer(X, W))
        torch.testing.assert_close(fn(torch.randn(4, 6), W).shape, (4, 3))
    assert fn.asked == 1
    assert fn.kernel_calls == [1] * 6


def test_each_spelling_is_remembered():
    fn = Counted(layer)
    spellings = [
        lambda: fn(X, W),
        lambda: fn(X, w=W),
        lambda: fn(w=W, x=X),
        lambda: fn(X, W, 2.0),
        lambda: fn(X, scale=2.0, w=W),
    ]
    for _ in range(3):
        for call in spellings:
            torch.testing.assert_close(call(), layer(X, W))
    assert len(fn.programs) == 1
    # Of calls of the same shapes the newest four are kept: the fifth spelling drives out the first.
    before = fn.asked
    for call in spellings[1:4]:
        call()
        call()
    assert fn.asked <= before + 3


def test_names_in_another_order_are_no_other_tensors():
    fn, a, b = Counted(lambda x, y: x - y), torch.randn(3, 3), torch.randn(3, 3)
    for _ in range(2):
        torch.testing.assert_close(fn(x=a, y=b), a - b)
        torch.testing.assert_close(fn(y=b, x=a), a - b)
        torch.testing.assert_close(fn(a, y=b), a - b)


@pytest.mark.parametrize(
    ("first", "second"), [(1, 1.0), (1, True), (0.0, False), (2.0, 3.0), (None, 2.0)]
)
def test_numbers_that_are_equal_in_python_are_not_in_a_program(first, second):
    def fn(x, w, scale):
        return x @ w if scale is None else (x @ w) * scale

    counted = Counted(fn)
    for value in (first, second) * 3:
        torch.testing.assert_close(counted(X, W, value), fn(X, W, value))
    assert (len(counted.programs), counted.asked) == (2, 2)


def test_zeros_of_both_signs_are_other_calls():
    def fn(x, scale):
        return x / scale

    counted = Counted(fn)
    for value in (0.0, -0.0, float("-0.0"), float("0.0")) * 2:
        torch.testing.assert_close(counted(X, value), fn(X, value))
    assert (len(counted.programs), counted.asked) == (2, 2)


def others():
    return {
        "shape": (torch.randn(5, 6), W),
        "strides": (X, torch.randn(3, 6).T),
        "type": (X.half(), W.half()),
        "parameter": (X, nn.Parameter(W, requires_grad=False)),
    }


@pytest.mark.parametrize("name", others())
def test_other_tensors_are_other_calls(name):
    fn, (x, w) = Counted(layer), others()[name]
    for _ in range(3):
        torch.testing.assert_close(fn(X, W), layer(X, W))
        torch.testing.assert_close(fn(x, w), layer(x, w))
    # A parameter is asked about once, and served by the kernel there is.
    assert (fn.asked, len(fn.programs)) == (2, 1 if name == "parameter" else 2)


def test_a_gradient_goes_through_the_function():
    fn = Counted(layer)
    w = W.clone().requires_grad_()
    with torch.no_grad():
        for _ in range(2):
            fn(X, w)
    with pytest.warns(MirageWarning, match="requires grad"):
        fn(X, w).sum().backward()
    assert w.grad is not None
    with torch.no_grad():
        fn(X, w)
    assert fn.kernel_calls == [1] * 3


def test_a_tangent_goes_through_the_function():
    fn, tangent = Counted(layer), torch.ones_like(X)
    wanted = torch.func.jvp(lambda x: layer(x, W), (X,), (tangent,))[1]
    for calls in (0, 2):
        for _ in range(calls):
            fn(X, W)
        with forward_ad.dual_level():
            result = fn(forward_ad.make_dual(X, tangent), W)
            torch.testing.assert_close(forward_ad.unpack_dual(result).tangent, wanted)
        assert fn.kernel_calls == [1] * calls


class Wrapper(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x, w):
        return self.fn(x, w)


class Watching(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def test_whoever_watches_sees_the_function():
    fn = Counted(layer)
    fn(X, W)
    fn(X, W)
    with Watching() as mode:
        fn(X, W)
    assert torch.ops.aten.relu.default in mode.seen
    batch = torch.randn(2, 4, 6)
    torch.testing.assert_close(torch.vmap(fn, (0, None))(batch, W), layer(batch, W))
    traced = torch.fx.symbolic_trace(Wrapper(fn)).graph
    assert torch.relu in [node.target for node in traced.nodes]
    assert torch.jit.trace(Wrapper(fn), (X, W), check_trace=False).graph.findNode("aten::relu")
    assert fn.kernel_calls == [1] * 2


def test_the_state_of_torch_is_asked():
    fn = Counted(layer)
    for _ in range(2):
        fn(X, W)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert fn(X, W).dtype == torch.bfloat16
        with torch.no_grad():
            fn(X, W)
    assert len(fn.programs) == 3
    asked = fn.asked
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        fn(X, W)
    finally:
        torch.set_default_dtype(before)
    assert fn.asked == asked + 1


def test_training_mode_is_asked():
    model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)).requires_grad_(False).eval()
    fn = Counted(model)
    for _ in range(3):
        torch.testing.assert_close(fn(X), model(X))
    assert fn.asked == 1
    model.train()
    with pytest.warns(MirageWarning, match="dropout"):
        fn(X)
    model.eval()
    ours = fn.kernel_calls.count(1)
    fn(X)
    assert fn.kernel_calls.count(1) == ours + 1


def test_a_method_is_remembered_for_each_instance():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 6)

        def forward(self, x):
            return self.linear(x) + (1 if self.training else 2)

    fn = Model.fast = Counted(Model.forward)
    models = [Model().requires_grad_(False).eval() for _ in range(2)]
    for _ in range(2):
        for model in models:
            torch.testing.assert_close(model.fast(X), model(X))
    assert fn.asked == 2
    models[0].train()
    torch.testing.assert_close(models[0].fast(X), models[0](X))
    assert fn.asked == 3


def test_captured_tensors_are_read_and_asked():
    held = {"w": torch.randn(6, 3)}

    def product(x):
        return x @ held["w"]

    fn = Counted(product)
    for _ in range(2):
        torch.testing.assert_close(fn(X), product(X))
        held["w"] = torch.randn(6, 3)
        torch.testing.assert_close(fn(X), product(X))
    assert fn.asked == 1
    held["w"] = torch.randn(6, 5)
    torch.testing.assert_close(fn(X), product(X))
    assert len(fn.programs) == 2
    del held["w"]
    with pytest.warns(MirageWarning, match="cannot be traced"), pytest.raises(KeyError):
        fn(X)


def test_marks_of_dynamic_axes_are_asked():
    fn = Counted(layer)
    fn(X, W)
    marked = torch.randn(4, 6)
    torch._dynamo.mark_dynamic(marked, 0)
    for _ in range(2):
        fn(marked, W)
        fn(X, W)
    assert fn.asked == 2
    table = fn.dispatch_table()
    assert "x_0" in table
    assert table.splitlines()[-1].split()[-1] == "2"  # calls of the row, repeats among them
    torch._dynamo.mark_static(marked, 0)
    fn(marked, W)
    assert fn.asked == 3


def test_structures_come_back_as_the_function_gives_them():
    def pair(x):
        return x * 2, x + 1

    def mapping(x):
        return {"twice": x * 2, "more": (x + 1, None, 7)}

    def alone(x):
        return (x * 2,)

    for fn in (pair, mapping, alone):
        counted, want = Counted(fn), fn(X)
        for _ in range(3):
            got = counted(X)
            torch.testing.assert_close(got, want)
            assert type(got) is type(want)
        assert counted.asked == 1


def test_tensors_in_lists_ask_every_time():
    fn = Counted(lambda xs: xs[0] + xs[1])
    for _ in range(3):
        torch.testing.assert_close(fn([X, X]), X + X)
    assert (fn.asked, len(fn.programs)) == (3, 1)


def test_a_list_of_one_tensor_is_no_tensor():
    def first(x, *others):
        return x - others[0]

    def listed(x, others):
        return x - others[0]

    for fn, more in ((first, X + 1), (listed, [X + 1]), (listed, {0: X + 1})):
        counted = Counted(fn)
        for _ in range(2):
            torch.testing.assert_close(counted(X, more), fn(X, more))


def test_a_default_that_is_a_tensor_asks_every_time():
    shift = torch.ones(6)

    def moved(x, by=shift):
        return x + by

    fn = Counted(moved)
    for _ in range(3):
        torch.testing.assert_close(fn(X), X + 1)
    assert fn.asked == 3


def test_a_kernel_that_fails_later_costs_a_warning_and_is_forgotten():
    fn = Counted(layer)
    fn(X, W)
    fn(X, W)

    def broken(*_):
        raise RuntimeError("illegal access")

    (entry,) = fn._tables._entries.values()
    object.__setattr__(entry, "kernel", broken)
    fn._repeated.clear()
    with pytest.warns(MirageWarning, match="illegal access"):
        torch.testing.assert_close(fn(X, W), layer(X, W))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fn(X, W)
    assert fn._repeated.last((X, W), {}).call is layer


GRAD = torch.randn(4, 6, requires_grad=True)


@pytest.mark.filterwarnings("ignore::mirage_py.MirageWarning")
@pytest.mark.parametrize(
    ("fn", "calls"),
    [
        (lambda x, w: x @ w, lambda fn: fn(GRAD, W)),
        (lambda x, w, k=2: x @ w * k, lambda fn: fn(GRAD, w=W, k=3)),
        (lambda xs: xs[0] + xs[1], lambda fn: fn([GRAD, X])),
        (lambda xs: xs["a"] + 1, lambda fn: fn({"a": GRAD})),
        (nn.Linear(6, 2), lambda fn: fn(X)),
    ],
)
def test_a_refused_call_is_remembered_too(fn, calls):
    served = Counted(fn)
    for _ in range(4):
        assert calls(served).requires_grad
        torch.testing.assert_close(calls(served), calls(fn))
    assert served.asked == 1
    assert not served.programs


@pytest.mark.filterwarnings("ignore::mirage_py.MirageWarning")
def test_what_is_unlike_a_refused_call_is_looked_at():
    def total(xs, k=2):
        return xs[0] * k + xs[-1]

    served = Counted(total)
    for first in (GRAD, X, GRAD, X.double(), GRAD):
        torch.testing.assert_close(served([first, X]), total([first, X]))
    assert len(served.programs) == 1  # for X alone
    asked = served.asked
    with torch.no_grad():  # no gradient is wanted now
        served([GRAD, X])
    assert len(served.programs) == 2
    for args in (((GRAD, X),), ([GRAD],), ([GRAD, X], 3), ([GRAD, X], 3)):
        torch.testing.assert_close(served(*args), total(*args))
    assert served.asked == asked + 4  # no_grad, and three more


@pytest.mark.filterwarnings("ignore::mirage_py.MirageWarning")
def test_an_error_of_a_refused_function_is_raised_once():
    seen = []

    def picky(x):
        seen.append(x)
        if len(seen) > 1:
            raise RuntimeError("the user's own")
        return x * 2

    served = Counted(picky)
    served(GRAD)
    with pytest.raises(RuntimeError, match="the user's own"):
        served(GRAD)
    assert len(seen) == 2


@pytest.mark.filterwarnings("ignore::mirage_py.MirageWarning")
def test_a_refusal_during_capture_is_not_remembered(monkeypatch):
    served = Counted(layer)
    monkeypatch.setattr(refused_calls, "is_capturing", lambda: True)
    served(X, W)
    monkeypatch.undo()
    served(X, W)
    assert len(served.programs) == 1


def test_a_repeat_that_fails_is_tried_as_a_new_call():
    fails = []

    class Once(Counted):
        def _exactly(self, program, inputs, reference):
            def kernel(*tensors):
                if fails and fails.pop():
                    raise RuntimeError("only once")
                return reference(*tensors)

            return kernel

    fn = Once(layer)
    fn(X, W)
    fails.append(True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(fn(X, W), layer(X, W))
    assert fn.asked == 2


def test_threads_share_the_repeats():
    fn, errors = Counted(layer), []
    shapes = [torch.randn(n, 6) for n in range(2, 8)]

    def work():
        with torch.enable_grad():
            for n in range(60):
                x = shapes[n % len(shapes)]
                if not torch.allclose(fn(x, W), layer(x, W)):
                    errors.append(n)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(fn.programs) == len(shapes)


def test_what_torch_compile_serves_is_guarded_by_torch_compile_alone(monkeypatch):
    """To look at each parameter again took three times as long as the call of a module."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    report = {"served": {"baseline": "compile", **reason(Code.NONE_VERIFIED).document()}}
    module = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3)).requires_grad_(False)
    fn = SuperoptimizedFunction(
        module, CallOptions(), lambda *asked: OriginalProgram({"eager": asked[2]}, report)
    )
    torch.testing.assert_close(fn(X), module(X))
    asked = []
    monkeypatch.setattr(Origin, "fetch", asked.append)
    monkeypatch.setattr(TracedCall, "is_current", lambda _: asked.append("state"))
    torch.testing.assert_close(fn(X), module(X))
    assert asked == []
    # Another state is the function's own affair, other arguments are another call.
    module[1].weight.add_(1.0)
    module[0].bias = None
    torch.testing.assert_close(fn(X), module(X))
    assert asked == []
    module.train(not module.training)
    assert fn._repeated.last((X,), {}) is ANOTHER
    assert fn._repeated.last((X[:2],), {}) is ANOTHER
