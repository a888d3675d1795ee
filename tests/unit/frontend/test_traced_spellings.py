"""Spellings that a trace met otherwise than they are: each is what eager makes of it."""

from __future__ import annotations

import pytest
import torch
from frontend_kernels import Interpreter

from mirage_py.frontend.decorator import CallOptions, SuperoptimizedFunction


class Holder:
    """What a function writes to and no trace can find: state does not look at classes."""

    buffer = torch.zeros(3, 4)


def writes_to_a_class(x):
    Holder.buffer.add_(x)
    return x * 2


def gradient(x):
    return torch.func.grad(lambda t: (t**2).sum())(x)


def writes_inside_vmap(x):
    return torch.func.vmap(lambda row: row.clone().add_(1))(x)


def another_memory(x, y):
    x.data = y * 2
    return x + 1


def another_memory_inside(x, y):
    z = x * 1
    z.data = y * 2
    return z + 1


def shapes(x, y):
    return x + y, x.shape, {"size": y.size()}


def broadcast(x, y):
    return torch.broadcast_tensors(x[:, :1], y)


def broadcast_one(x, y):
    return torch.broadcast_tensors(x[:1] * 2, y)[1]


def _optimised(fn):
    return SuperoptimizedFunction(fn, CallOptions(), Interpreter())


@pytest.mark.filterwarnings("ignore::mirage_py.MirageWarning")
@pytest.mark.parametrize("fn", [writes_to_a_class, gradient, writes_inside_vmap])
def test_of_one_tensor(fn):
    x = torch.randn(3, 4)
    Holder.buffer.zero_()
    wanted = [fn(x) for _ in range(2)]
    left, served = Holder.buffer.clone(), _optimised(fn)
    Holder.buffer.zero_()
    for one in wanted:
        torch.testing.assert_close(served(x), one)
    torch.testing.assert_close(Holder.buffer, left)


def test_data_of_a_tensor_is_the_tensor():
    """Optimizers spell their steps so."""

    def step(p, g, m):
        p.data.mul_(0.9).add_(torch.sign(m.data * 0.9 + g), alpha=-0.1)
        m.data.lerp_(g, 0.1)
        return p.data * 2

    given = [torch.randn(3, 4) for _ in range(3)]
    ours, eager = ([t.clone() for t in given] for _ in range(2))
    served = _optimised(step)
    for _ in range(2):
        torch.testing.assert_close(served(*ours), step(*eager))
        torch.testing.assert_close(ours, eager)
    assert served.entry(*ours).kernel is not None


def test_a_refusal_quotes_no_line_of_this_package():
    """A module of torch has no line of the user's."""
    served = SuperoptimizedFunction(torch.nn.Bilinear(3, 3, 2), CallOptions(), Interpreter())
    with torch.no_grad():
        why = str(served.entry(torch.randn(2, 3), torch.randn(2, 3)).decided.why)
    assert "not supported" in why
    assert "trace_call" not in why


@pytest.mark.filterwarnings("ignore::mirage_py.MirageWarning")
@pytest.mark.parametrize("fn", [another_memory, another_memory_inside])
def test_a_tensor_that_is_given_another_memory(fn):
    x, y = torch.ones(3), torch.full((3,), 3.0)
    torch.testing.assert_close(_optimised(fn)(x, y), torch.full((3,), 7.0))
    assert x[0] == (6.0 if fn is another_memory else 1.0)


def test_a_shape_is_a_shape():
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    served = _optimised(shapes)
    for _ in range(2):
        found = served(x, y)
        assert [type(s) for s in (found[1], found[2]["size"])] == [torch.Size, torch.Size]
        assert found[1:] == (x.shape, {"size": y.shape})
        torch.testing.assert_close(found[0], x + y)
    assert served.entry(x, y).kernel is not None


@pytest.mark.filterwarnings("ignore::mirage_py.MirageWarning")
@pytest.mark.parametrize("fn", [broadcast, broadcast_one])
def test_views_of_several_tensors_at_once_are_views(fn):
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    found = _optimised(fn)(x, y)
    last = found[-1] if isinstance(found, tuple | list) else found
    y.fill_(5.0)
    assert last.eq(5.0).all()


def test_factors_of_whole_products_are_whole():
    a, x, y = (torch.randn(3, 3) for _ in range(3))

    def product(a, x, y):
        a, x, y = ((t > 0).int() for t in (a, x, y))
        return torch.addmm(a, x, y, beta=0.7, alpha=2.6)

    served = _optimised(product)
    assert served(a, x, y).equal(product(a, x, y))
    assert served.entry(a, x, y).kernel is not None


def test_the_inverse_of_tanh_near_its_ends_in_16_bits():
    from mirage_py.frontend.torch import trace
    from mirage_py.runtime.eager.eager_source import torch_function

    x = torch.tensor([-0.99609375, -0.98, -0.5, -1e-3, 1e-3, 0.5, 0.98, 0.99609375]).bfloat16()
    found = torch_function(trace(torch.atanh, x))(x)
    torch.testing.assert_close(found, torch.atanh(x), rtol=2e-2, atol=0)


@pytest.mark.filterwarnings("ignore")
def test_tensors_without_strides_are_the_functions_own():
    served = _optimised(lambda x: x * 2)
    for _ in range(3):
        for kind in ("csr", "csc", "coo"):
            x = getattr(torch.eye(3), f"to_sparse_{kind}" if kind != "coo" else "to_sparse")()
            assert served(x).to_dense().equal(torch.eye(3) * 2)
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        assert [t.tolist() for t in served(nested).unbind()] == [[2.0] * 2, [2.0] * 3]
        assert served(torch.ones(3)).equal(torch.full((3,), 2.0))
    assert "sparse_csr" in served.dispatch_table()
    assert "nested" in served.dispatch_table()


@pytest.mark.filterwarnings("ignore")
def test_a_coroutine_is_awaited_by_the_caller():
    async def doubled(x):
        return x * 2

    def each(x):
        yield x * 2

    x = torch.randn(3, 4)
    for _ in range(2):
        with pytest.raises(StopIteration) as returned:
            _optimised(doubled)(x).send(None)
        assert returned.value.value.equal(x * 2)
        assert next(_optimised(each)(x)).equal(x * 2)
