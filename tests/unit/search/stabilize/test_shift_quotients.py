"""Quotients of exponentials that are not each other's: a softmax read at one place."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from exp_graphs import check, softmax
from families import safe_families
from torch import Tensor

from mirage_py.frontend.torch.trace import trace
from mirage_py.pipeline.pipeline import normalise
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.search.enumerate.search import search
from mirage_py.search.rank.instantiate import rank
from mirage_py.targets import H200
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.verify.field_test.field_test import field_test
from mirage_py.verify.shifts.safe_exp import add_safe_shifts


def first_of(x: Tensor, y: Tensor) -> Tensor:
    """The softmax at place 0, where y says so."""
    share = x[:, :1].exp() / x.exp().sum(-1, keepdim=True)
    return torch.where(y > 0, share, 0.0)


def either(x: Tensor, y: Tensor) -> Tensor:
    """The softmax at place 0 or 1."""
    total = x.exp().sum(-1, keepdim=True)
    return torch.where(y > 0, x[:, :1].exp() / total, x[:, 1:2].exp() / total)


def _wanted(function: str, x: Tensor, y: Tensor) -> Tensor:
    shares = x.double().softmax(-1)
    other = 0.0 if function == "first_of" else shares[:, 1:2]
    return torch.where(y > 0, shares[:, :1], other)


def _inputs(scale: float) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1)
    return torch.randn(4, 16, generator=draw) * scale, torch.randn(4, 16, generator=draw)


@pytest.mark.parametrize("function", [first_of, either])
def test_large_logits_and_what_a_select_leaves_out(function) -> None:
    program = normalise(trace(function, *_inputs(1.0)))
    found = safe_families(search(program).families).ugraphs
    assert found
    plan = rank(found, H200, 20, "triton")[0].plan
    kernels = [k for k in plan.ugraph.kernels if isinstance(k, BlockGraph)]
    assert "shift" in [n.op for k in kernels for n in k.nodes]
    field_test(program, plan.ugraph, trials=2, seed=0).require()
    for scale in (1.0, 300.0, 1e5):
        x, y = _inputs(scale)
        want = _wanted(function.__name__, x, y).numpy()
        arrays = {"x": x.double().numpy(), "y": y.double().numpy()}
        (got,) = run_interpreted(plan, arrays).values()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
        (exact,) = evaluate_program(add_safe_shifts(program), arrays, FloatMeaning()).values()
        np.testing.assert_allclose(exact, want, rtol=1e-6, atol=1e-12)
    if function is first_of:
        arrays["x"][2, 3] = np.nan
        (got,) = run_interpreted(plan, arrays).values()
        assert (got[2][y[2].numpy() <= 0] == 0).all()


def test_what_a_sum_divides_at_places_of_its_own_gives_it_no_dimensions() -> None:
    """exp(x[d]) / sum(exp(x[e])): a maximum at each d would be subtracted under the sum over e."""

    def both(x: Tensor, y: Tensor) -> Tensor:
        p, q = x.softmax(-1), y.softmax(-1)
        middle = (p + q).log()
        return (p * (p.log() - middle)).sum(-1) + (q * (q.log() - middle)).sum(-1)

    program = trace(both, *_inputs(1.0))
    shifted = add_safe_shifts(program)
    most = max(len(n.dims) for n in program.nodes)
    assert max(len(n.dims) for n in shifted.nodes) == most
    x, y = _inputs(1.0)
    torch.testing.assert_close(torch_function(program)(x, y), both(x, y))


def test_exponentials_are_divided_that_share_no_sum() -> None:
    def ratio(x: Tensor, y: Tensor) -> Tensor:
        return x.exp().sum(-1) / y.exp().sum(-1)

    program = normalise(trace(ratio, *_inputs(1.0)))
    found = safe_families(search(program).families).ugraphs
    plan = rank(found, H200, 20, "triton")[0].plan
    x, y = _inputs(1.0)
    x, y = x + 1e4, y + 1e4
    arrays = {"x": x.double().numpy(), "y": y.double().numpy()}
    (got,) = run_interpreted(plan, arrays).values()
    want = (x.double().logsumexp(-1) - y.double().logsumexp(-1)).exp().numpy()
    np.testing.assert_allclose(got, want, rtol=2e-3)


def both_chosen(x: Tensor, y: Tensor) -> Tensor:
    """A choice of two, each from logits of its own."""
    return x.softmax(-1)[:, 0] * y.softmax(-1)[:, 1]


def mean_chance(x: Tensor, y: Tensor) -> Tensor:
    return (x.softmax(-1)[:, 0] + y.softmax(-1)[:, 1]) / 2


def odds(x: Tensor, y: Tensor) -> Tensor:
    return x.softmax(-1)[:, 0] / y.softmax(-1)[:, 1]


def offset(x: Tensor, y: Tensor) -> Tensor:
    return both_chosen(x, y) + 1


@pytest.mark.parametrize("function", [both_chosen, mean_chance, odds, offset])
def test_two_softmaxes_that_meet_have_a_maximum_each(function) -> None:
    """With the maximum of both, the exponentials of the lower logits were 0, and 0 / 0."""
    x, y = _inputs(2.0)
    x, y = x + 300, y - 500
    program = normalise(trace(function, x, y))
    want = function(x.double(), y.double())
    torch.testing.assert_close(torch_function(program)(x, y).double(), want, rtol=1e-4, atol=1e-6)
    arrays = {"x": x.double().numpy(), "y": y.double().numpy()}
    (exact,) = evaluate_program(add_safe_shifts(program), arrays, FloatMeaning()).values()
    np.testing.assert_allclose(exact, want.numpy(), rtol=1e-6)
    found = safe_families(search(program).families).ugraphs
    plans = [instance.plan for instance in rank(found, H200, 20, "triton")]
    assert plans
    for plan in plans[:4]:
        (got,) = run_interpreted(plan, arrays).values()
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-3)


def test_one_exp_by_two_formulas() -> None:
    graph = softmax(
        "tensor A[5] : f32",
        """
kernel first {
  grid b by 2
  %0 = load X[b, (r * 3 + p) * 4 + s]
  %1 = maximum %0, %0
  %2 = cast[f32] %1
  %3 = exp %2
  %4 = sum[r, p, s] %3
  store A[b] = %4
}
kernel second {
  grid b by 2
  %0 = load X[b, (r * 3 + p) * 4 + s]
  %1 = exp %0
  %2 = load W[(r * 3 + p) * 4 + s]
  %3 = mul %1, %2
  %4 = sum[r, p, s] %3
  %5 = load A[b]
  %6 = div %4, %5
  store Y[b] = %6
}
""",
    )
    check(graph)
