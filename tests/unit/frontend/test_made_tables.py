"""Numbers that each call makes of numbers alone: torch computes those that no kernel does, once."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from frontend_kernels import Interpreter

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.decorator import CallOptions, SuperoptimizedFunction
from mirage_py.frontend.torch import trace
from mirage_py.frontend.torch.trace import trace_arguments, trace_call


def distances_in_buckets(scores, table):
    """The relative positions of T5, as transformers has them."""
    rows, columns = scores.shape[-2:]
    distance = torch.arange(columns)[None, :] - torch.arange(rows)[:, None]
    distance = -torch.min(distance, torch.zeros_like(distance))
    far = 16 + (torch.log(distance.float() / 16) / math.log(128 / 16) * 16).to(torch.long)
    far = torch.min(far, torch.full_like(far, 31))
    bucket = torch.where(distance < 16, distance, far)
    return scores + F.embedding(bucket, table).permute(2, 0, 1)


def special_function(x):
    return x * torch.special.i0(torch.linspace(0, 3, x.shape[-1]))


def below_the_diagonal(x):
    rows, columns = torch.tril_indices(x.shape[-2], x.shape[-1], -1)
    return x[:, rows, columns]


def inverse_of_a_constant(x):
    return x @ torch.linalg.inv(torch.tril(torch.ones(x.shape[-1], x.shape[-1])))


def two_refusals(x):
    n = x.shape[-1]
    return x * torch.special.i0(torch.arange(n) / n) + torch.special.i1(torch.arange(n) / n)


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (distances_in_buckets, [(4, 20, 20), (32, 4)]),
        (special_function, [(3, 20)]),
        (below_the_diagonal, [(2, 6, 6)]),
        (inverse_of_a_constant, [(2, 20)]),
        (two_refusals, [(3, 20)]),
    ],
)
def test_what_torch_makes_of_numbers_is_a_table(fn, shapes):
    kernels = Interpreter()
    served = SuperoptimizedFunction(fn, CallOptions(), kernels)
    for seed in range(2):
        torch.manual_seed(seed)
        given = [torch.randn(s) for s in shapes]
        torch.testing.assert_close(served(*given), fn(*given))
    assert kernels.calls[kernels.programs[0].name] == 2
    assert len(kernels.programs) == 1


def test_large_numbers_are_compared_as_integers():
    a = torch.tensor([[0, 30000000, 30000001, 2**40, 120000000, 5 * 30000000 + 1]]).repeat(2, 4)

    def found(x, a):
        return x * ((torch.arange(24) % 6 * 30000000)[None] == a)

    served = SuperoptimizedFunction(found, CallOptions(), Interpreter())
    x = torch.randn(2, 24)
    torch.testing.assert_close(served(x, a), found(x, a))
    assert served.entry(x, a).kernel is not None


def test_tables_of_other_sizes_are_other_tables():
    """A kernel of many sizes would read the table of one."""
    given = [torch.randn(3, n) for n in (20, 20, 24)]
    first, again, larger = (trace_call(*trace_arguments(special_function, [x])) for x in given)
    assert first.reads_like(again)
    assert not first.reads_like(larger)
    assert first.reads_like(first)


def test_the_first_refusal_is_reported():
    """A table helps where nothing else is refused."""

    def refused(x, at):
        return x * torch.special.i0(torch.arange(x.shape[-1])) + torch.special.i0(x)

    with pytest.raises(UnsupportedError, match="i0") as error:
        trace(refused, torch.randn(3, 20), torch.randn(3))
    assert "refused" not in str(error.value.__cause__)


def test_random_numbers_are_no_table():
    with pytest.raises(UnsupportedError, match="rand"):
        trace(lambda x: x * torch.rand(x.shape[-1]), torch.randn(3, 20))
