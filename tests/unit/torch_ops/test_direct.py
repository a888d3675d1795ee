"""An operator's kernel directly behind the dispatcher; whoever should see the operator does."""

from __future__ import annotations

from itertools import count

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from mirage_py.errors import InputError
from mirage_py.torch_ops.direct import register_direct

_NUMBER = count()
X, W = torch.randn(4, 6), torch.randn(6)


class Operator:
    """x * w as an operator; counts what its kernel is called with."""

    def __init__(self):
        name = f"mirage_py_tests::direct{next(_NUMBER)}"
        self.calls = []

        @torch.library.custom_op(name, mutates_args=())
        def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            raise AssertionError("the kernel of no device")

        def kernel(x, w):
            self.calls.append((torch.is_grad_enabled(), x.requires_grad or w.requires_grad))
            return torch.mul(x, w)

        product.register_fake(lambda x, w: torch.empty_like(x))
        product.register_autograd(
            lambda ctx, g: (g * ctx.saved_tensors[1], (g * ctx.saved_tensors[0]).sum(0)),
            setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
        )
        register_direct(product, name, "CPU", kernel)
        self.op = getattr(torch.ops.mirage_py_tests, name.partition("::")[2]).default


@pytest.fixture
def product():
    return Operator()


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operators = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operators.append(func)
        return func(*args, **(kwargs or {}))


def test_plain_tensors_go_straight_to_the_kernel(product):
    for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode):
        with mode():
            got = product.op(X, W)
        assert torch.equal(got, X * W)
        assert not got.requires_grad
    assert len(product.calls) == 3


def test_a_tangent_is_refused_and_not_lost(product):
    with forward_ad.dual_level():
        assert torch.equal(product.op(X, W), X * W)
        dual = forward_ad.make_dual(X, X)
        with torch.no_grad(), pytest.raises(InputError, match="tangent"):
            product.op(dual, W)


def test_gradients_are_the_operators_own(product):
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    product.op(x, w).sum().backward()
    torch.testing.assert_close((x.grad, w.grad), (W.expand(4, 6), X.sum(0)))
    # Below autograd nothing is recorded a second time.
    assert product.calls == [(False, True)]
    with torch.no_grad():
        assert not product.op(x, w).requires_grad
    assert product.op(X, w).requires_grad


def test_modes_see_the_operator(product):
    with Seen() as seen:
        product.op(X, W)
    assert seen.operators[0] is product.op
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fake = product.op(mode.from_tensor(X), mode.from_tensor(W))
    assert type(fake) is not torch.Tensor
    assert len(product.calls) == 1


def test_a_view_that_is_negated_as_it_is_read(product):
    x = torch.complex(X, X).conj().imag
    assert torch.equal(product.op(x, W), -X * W)


@pytest.mark.parametrize("grad", [False, True])
def test_opcheck(product, grad):
    inputs = X.clone().requires_grad_(grad), W.clone().requires_grad_(grad)
    torch.library.opcheck(product.op, inputs)


def test_a_frame_that_torch_compile_skips_shows_it_nothing(product):
    @torch._dynamo.disable(recursive=False)
    def skipped(x, w):
        return product.op(x, w)

    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(lambda x, w: skipped(x, w) + 1, backend="eager")
    assert torch.equal(compiled(X, W), X * W + 1)
    assert len(product.calls) == 1
    assert not any(
        "DispatchKeySet" in text for text in torch._dynamo.utils.counters["unimplemented"]
    )
    assert torch._dynamo.utils.counters["frames"]["total"] <= 3
